"""Numbered start states (`env.reset_state_ids`): whether the environment reads the numbers."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import gymnasium
from gymnasium.utils.env_checker import data_equivalence

from rlinf.rollouts.deadline import can_interrupt, deadline
from rlinf.rollouts.isolation.vec_env import call_once
from rlinf.rollouts.vec_env.make_env import make_env
from rlinf.rollouts.vec_env.vec_env import close_quietly
from rlinf.schema import EnvConfig

SAME_STARTS = "every one of the reset_state_ids begins with the same observation."
SAME_STARTS_ADVICE = (
    "Its reset must read options['reset_state_id'], and return it as info['reset_state_id'] if observations do not "
    "differ. Or take reset_state_ids out of env and evaluation, and the seed picks the start."
)
# Some states have equal observations; that many that do are one state. The first that differs ends the search.
_TRIED_STATES = 8


def ignores_state_ids(options: EnvConfig) -> bool:
    """Whether all numbered start states have one observation: the environment does not read the numbers.

    It is tried on an environment of its own, and with `env.isolation: process` in a process of its own. One that fails
    is not judged here."""
    numbers = list(dict.fromkeys(options.reset_state_ids))[:_TRIED_STATES]
    if len(numbers) < 2:
        return False
    try:
        if options.isolation == "process":
            return bool(call_once(options, "starts").fields["ignored"])
        env = make_env(options)
        try:
            with deadline(options.step_timeout_s if can_interrupt() else 0.0):
                first, confirmed = _start(env, numbers[0])
                return confirmed != numbers[0] and all(
                    data_equivalence(first, _start(env, number)[0]) for number in numbers[1:]
                )
        finally:
            close_quietly(env)
    except Exception:  # a reset that fails is counted and reported by the rollouts
        return False


def _start(env: gymnasium.Env, number: int) -> tuple[Any, Any]:
    """Return the first observation of a numbered start, and the number that its info confirms, if any."""
    observation, info = env.reset(seed=0, options={"reset_state_id": number})
    # A copy: an environment may write every observation into the same array.
    return deepcopy(observation), info.get("reset_state_id")
