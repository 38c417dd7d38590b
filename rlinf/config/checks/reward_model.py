"""A learned reward: that it has weights or is trained, and that its result is read."""

from __future__ import annotations

from rlinf.algorithms.catalog import columns_of
from rlinf.config.context import Context
from rlinf.config.derived import is_text
from rlinf.config.names import leaves

_TRAINING = ("learn_from", "epochs", "batch_rows", "lr")
_REPLAY = ("fresh_batches", "replay_fraction", "history_rows")


def check_reward_model(context: Context) -> None:
    """Check for keys without a reader, a head that nothing trains, and algorithms that read other rewards."""
    if not is_text(context.config):
        return
    config = context.config.reward_model
    if config.supervision == "none":
        for key in leaves():
            if key.startswith("reward_model."):
                fix = "Set reward_model.supervision: outcome, or process."
                context.unread(key, "is not read without a reward model.", fix)
        return
    if config.path is None and not config.fit_batches:
        message = "reward_model: without a path its head is untrained, and reward_model.fit_batches is 0."
        fix = "Set reward_model.fit_batches: 8, for example, or reward_model.path."
        context.error("reward_model.fit_batches", message, fix, at=("reward_model.path",))
    if not config.fit_batches and not config.refresh_every:
        for name in _TRAINING:
            why = "is not read: this reward model is never trained."
            context.unread(f"reward_model.{name}", why, "Set fit_batches or refresh_every.")
    if not config.refresh_every:
        for name in _REPLAY:
            why = "is not read without reward_model.refresh_every."
            context.unread(f"reward_model.{name}", why, "Set reward_model.refresh_every: 10.")
    if config.fresh_batches and context.config.rollout.staleness:
        message = "reward_model.fresh_batches needs samplers that are busy with the next batch (rollout.staleness)."
        fix = "Set rollout.staleness: 0, or fresh_batches: 0."
        context.error("reward_model.fresh_batches", message, fix)
    context.run(_check_pairs)
    context.run(_check_readers)


def _check_pairs(context: Context) -> None:
    config = context.config.reward_model
    if config.learn_from == "pairs" and context.config.algorithm.group_size < 2:
        message = "reward_model.learn_from: pairs compares answers to one prompt, and there is one of each."
        fix = "Set algorithm.group_size: 8, or learn from verdicts."
        context.error("reward_model.learn_from", message, fix)


def _check_readers(context: Context) -> None:
    """Scores of steps go to estimators that read them, those of responses to the others; some read others."""
    supervision, algorithm = context.config.reward_model.supervision, context.config.algorithm
    of_steps = "step_rewards" in columns_of(algorithm.adv_type)
    if of_steps != (supervision == "process"):
        reader = "process" if of_steps else "outcome"
        message = f"reward_model.supervision: {supervision} is not what adv_type: {algorithm.adv_type} learns from."
        fix = f"Set reward_model.supervision: {reader}."
        context.error("reward_model.supervision", message, fix)
    if algorithm.dynamic_sampling:
        message = "algorithm.dynamic_sampling chooses groups by the environment's rewards, not by the reward model's."
        context.error("algorithm.dynamic_sampling", message, "Take it out, or filter_rewards instead.")
    if "greedy_rewards" in columns_of(algorithm.adv_type):
        message = f"adv_type: {algorithm.adv_type} compares with the environment's reward of the greedy response,"
        message += " which is not scored."
        context.error("algorithm.adv_type", message, "Choose adv_type: rloo.")
