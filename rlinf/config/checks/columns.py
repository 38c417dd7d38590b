"""Columns that only some estimators need, values among them, and who delivers them."""

from __future__ import annotations

from rlinf.algorithms import catalog
from rlinf.config.context import Context
from rlinf.config.derived import is_off_policy, is_text

_OURS = "rlinf_envs:"


def check_columns(context: Context) -> None:
    """Scores of steps come from the environment, greedy responses from text rollouts."""
    algorithm, env = context.config.algorithm, context.config.env
    if context.is_broken("algorithm.adv_type"):
        return
    entry = catalog.estimator(algorithm.adv_type)
    chosen = f"adv_type: {algorithm.adv_type}"
    if (
        is_text(context.config)
        and "step_rewards" in entry.needs
        and env.id.startswith(_OURS)
        and not env.kwargs.get("steps")
    ):
        message = f"{chosen} needs a score for each step of a response, and the environment gives none."
        fix = "Set env.kwargs.steps: {scorer: arithmetic}, or {scorer: 'module:name'} for a scorer of your own."
        context.error("algorithm.adv_type", message, fix)
    if "greedy_rewards" in entry.needs:
        if not is_text(context.config):
            message = f"{chosen} needs a greedy response to each prompt, which only language models' rollouts deliver."
            context.error("algorithm.adv_type", message, "Choose adv_type: grpo, for example.")
        context.run(_check_greedy)
    if "reward_terms" in entry.needs:
        context.run(_check_terms)


def _check_terms(context: Context) -> None:
    """Check that rewards have terms, and that the run changes no reward: their sum would change, and not they."""
    config, algorithm = context.config, context.config.algorithm
    chosen = f"adv_type: {algorithm.adv_type}"
    if not is_text(config):
        message = f"{chosen} normalises the terms of a reward, which simulators do not report."
        context.error("algorithm.adv_type", message, "Choose adv_type: grpo, for example.")
        return
    added = {
        "algorithm.reward_norm": algorithm.reward_norm is not None,
        "algorithm.reward_clip": bool(algorithm.reward_clip),
        "algorithm.whiten_rewards": algorithm.whiten_rewards,
        "algorithm.overlong_penalty": algorithm.overlong_penalty.coef != 0,
        "algorithm.add_token_level_kl": algorithm.add_token_level_kl and algorithm.kl_coef != 0,
        "reward_model.supervision": config.reward_model.supervision != "none",
    }
    for name in (name for name, on in added.items() if on):
        message = f"{chosen} reads the terms of the environment's reward, and {name} changes their sum alone."
        context.error(name, message, "Take it out: a length term of env.kwargs.reward is one that it can read.")


def _check_greedy(context: Context) -> None:
    """Check that the greedy response's reward and the others are on the same scale, that of the environment."""
    algorithm = context.config.algorithm
    reshaped = {
        "reward_norm": algorithm.reward_norm is not None,
        "overlong_penalty": algorithm.overlong_penalty.coef != 0,
    }
    for name in (name for name, on in reshaped.items() if on):
        message = f"algorithm.{name} changes the rewards that adv_type: remax compares with the greedy response's own."
        context.error(f"algorithm.{name}", message, "Take it out, or choose adv_type: rloo.")


def check_critic(context: Context) -> None:
    """Check that a critic that is needed exists and is trained; one that is not needed costs memory."""
    algorithm, policy = context.config.algorithm, context.config.policy
    if is_off_policy(context.config) or context.is_broken("algorithm.adv_type", "algorithm.loss_type"):
        return
    advantage, loss = catalog.estimator(algorithm.adv_type), catalog.loss(algorithm.loss_type)
    estimator_needs, loss_trains = "values" in advantage.needs, "values" in loss.needs
    # An actor-critic always has one; a policy class of the user's has one if it returns values.
    if policy.name != "actor_critic" and ":" not in policy.name:
        if (estimator_needs or loss_trains) and not policy.value_head:
            who = f"adv_type: {algorithm.adv_type}" if estimator_needs else f"loss_type: {algorithm.loss_type}"
            message = f"{who} needs values, and this policy has no critic."
            fix = "Set policy.value_head: true, or choose adv_type: grpo with loss_type: actor."
            key = "algorithm.adv_type" if estimator_needs else "algorithm.loss_type"
            context.error(key, message, fix)
            return
        if policy.value_head and not estimator_needs and not loss_trains:
            why = f"is not read by adv_type: {algorithm.adv_type} with loss_type: {algorithm.loss_type}."
            context.unread("policy.value_head", why, "It is read by adv_type: gae.")
        if not policy.value_head:
            context.unread("learner.optimizer.critic_lr", "is not read without a critic.", "Take it out.")
    if estimator_needs and not loss_trains:
        message = f"adv_type: {algorithm.adv_type} needs a critic that learns, and loss_type: {algorithm.loss_type}"
        message += " does not train one."
        context.error("algorithm.loss_type", message, "Set loss_type: actor_critic.")
