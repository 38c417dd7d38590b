"""Hindsight replay: what relabelled goals cannot be had with."""

from __future__ import annotations

from rlinf.config.context import Context
from rlinf.config.defaults import value_of

_WITHOUT_HINDSIGHT: tuple[tuple[str, object, str, str], ...] = (
    ("algorithm.n_step", 1, "a return of several steps is of the goal that they were made for", "Set it to 1."),
    ("algorithm.priority_exponent", 0.0, "priorities are of transitions with their own goal", "Set it to 0."),
    (
        "env.num_action_chunks",
        1,
        "a chunk's reward is the sum of several, of which one goal is recorded",
        "Set it to 1.",
    ),
    ("env.normalize_rewards", False, "relabelled rewards are the environment's own", "Take it out."),
    ("env.frame_stack", 1, "stacked goals are none that compute_reward takes", "Set it to 1."),
    ("env.tasks", [], "rewards are computed by the environment of one task", "Take it out."),
)


def check_hindsight(context: Context) -> None:
    """Report keys that go with relabelled goals alone, and those that do not go with them."""
    config = context.config
    strategy = config.algorithm.hindsight
    if strategy == "none":
        why = "is not read without algorithm.hindsight."
        context.unread("algorithm.hindsight_goals", why, "Add hindsight: future.")
        return
    for key, without, why, fix in _WITHOUT_HINDSIGHT:
        if value_of(config, key) != without:
            context.error(key, f"{key} does not go with algorithm.hindsight: {strategy}: {why}.", fix)
    if "FlattenObservation" in config.env.wrappers:
        message = f"env.wrappers: FlattenObservation hides the goals that algorithm.hindsight: {strategy} relabels."
        context.error("env.wrappers", message, "Take it out: policy.encoder: auto reads all parts of an observation.")
