"""Goals of observations, and the rewards of others than an episode had.

The interface is that of goal environments (`gymnasium_robotics.GoalEnv`).

Observations are a Dict with ``observation``, ``achieved_goal`` and ``desired_goal``. ``compute_reward(achieved,
desired, info)`` gives the rewards of any goals, of one or of n rows. ``compute_terminated`` with the same arguments,
where there is one, tells of one row whether an episode ends there.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple, Protocol

import numpy as np

from rlinf.data.spaces import ROOT, SpaceError

ACHIEVED, DESIRED = GOALS = f"{ROOT}.achieved_goal", f"{ROOT}.desired_goal"
"""Leaves of observations."""


class GoalRewards(NamedTuple):
    """The result of n steps under given goals."""

    rewards: np.ndarray
    """[n] float64."""
    terminated: np.ndarray | None
    """[n] bool: the episode ends there; None where the environment has no method for it."""


class GoalEnvironment(Protocol):
    """A vector environment that computes rewards of goals."""

    def goal_rewards(self, achieved: np.ndarray, desired: np.ndarray) -> GoalRewards:
        """Compute rewards for goals [n, ...] that were achieved by a step and desired."""


def require_goals(leaves: Collection[str], env_id: str) -> None:
    """Raise SpaceError unless observations have both goals."""
    missing = [name for name in GOALS if name not in leaves]
    if missing:
        raise SpaceError(
            f"algorithm.hindsight: the observations of {env_id} lack {' and '.join(missing)}; they have "
            f"{', '.join(sorted(leaves))}. It relabels the goals of a Dict observation with achieved_goal and "
            "desired_goal: take out wrappers that flatten it, or set algorithm.hindsight: none"
        )
