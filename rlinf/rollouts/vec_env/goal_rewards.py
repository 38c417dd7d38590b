"""Rewards of other goals, as an environment computes them (:mod:`rlinf.data.goals`)."""

from __future__ import annotations

import gymnasium
import numpy as np

from rlinf.data.goals import GoalRewards
from rlinf.data.spaces import SpaceError
from rlinf.rollouts.env_errors import account_of


def goal_rewards(env: gymnasium.Env, achieved: np.ndarray, desired: np.ndarray) -> GoalRewards:
    """Let ``env`` compute the rewards of goals [n, ...]; ``info`` is an empty dict for each row.

    Raises SpaceError if it has no ``compute_reward``, if that fails, or gives something else than n numbers.
    """
    if not env.has_wrapper_attr("compute_reward"):
        raise SpaceError(
            f"algorithm.hindsight: {type(env.unwrapped).__name__} has no method compute_reward(achieved_goal, "
            "desired_goal, info), which gives the rewards of other goals: write one, or set algorithm.hindsight: none"
        )
    try:
        returned = env.get_wrapper_attr("compute_reward")(achieved, desired, [{} for _ in achieved])
        rewards = np.asarray(returned, dtype=np.float64)
        terminated = None
        if env.has_wrapper_attr("compute_terminated"):
            ends = env.get_wrapper_attr("compute_terminated")
            terminated = np.array([bool(ends(*goals, {})) for goals in zip(achieved, desired, strict=True)], dtype=bool)
    except Exception as error:
        raise SpaceError(f"algorithm.hindsight: compute_reward failed: {account_of(error)}") from error
    if rewards.shape != (len(achieved),):
        raise SpaceError(
            f"algorithm.hindsight: compute_reward gave rewards of shape {rewards.shape} for {len(achieved)} rows of "
            "goals: it must take [n, ...] arrays and give [n] numbers"
        )
    return GoalRewards(rewards, terminated)
