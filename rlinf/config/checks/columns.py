"""Columns that only some estimators need, and who delivers them."""

from __future__ import annotations

from rlinf.algorithms import catalog
from rlinf.config.context import Context
from rlinf.config.facts import is_text

_OURS = "rlinf_envs:"


def check_columns(context: Context) -> None:
    """Scores of steps come from the environment, greedy responses and anchor states from text rollouts."""
    algorithm, env = context.config.algorithm, context.config.env
    if context.is_broken("algorithm.adv_type"):
        return
    entry = catalog.estimator(algorithm.adv_type)
    chosen, reads = f"adv_type: {algorithm.adv_type}", ("algorithm.adv_type", "env.id", "env.kwargs", "policy.name")
    if (
        is_text(context.config)
        and "step_rewards" in entry.needs
        and env.id.startswith(_OURS)
        and not env.kwargs.get("steps")
    ):
        message = f"{chosen} needs a score for each step of a response, and the environment was asked for none."
        fix = "Set env.kwargs.steps: {scorer: arithmetic}, or {scorer: 'module:name'} for a scorer of your own."
        context.error("algorithm.adv_type", message, fix, reads=reads)
    for column, what in (("greedy_rewards", "a greedy response to each prompt"), ("anchor_ids", "the state of a turn")):
        if column in entry.needs and not is_text(context.config):
            message = f"{chosen} needs {what}, which only rollouts of language models deliver."
            context.error("algorithm.adv_type", message, "Choose adv_type: grpo, for example.", reads=reads)
    if "greedy_rewards" in entry.needs:
        _check_greedy(context)


def _check_greedy(context: Context) -> None:
    """The greedy response's reward is as the environment gave it: that of the others must be on the same scale."""
    algorithm = context.config.algorithm
    reshaped = {
        "reward_norm": algorithm.reward_norm is not None,
        "overlong_penalty": algorithm.overlong_penalty.coef != 0,
    }
    for name in (name for name, on in reshaped.items() if on):
        message = f"algorithm.{name} changes the rewards that adv_type: remax compares with the greedy response's own."
        context.error(f"algorithm.{name}", message, "Take it out, or choose adv_type: rloo.")
