"""Bit flipping (Andrychowicz et al., arXiv:1707.01495, section 3.1): the task that random exploration never solves."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from rlinf_envs.typed import typed


class BitFlipEnv(gymnasium.Env):
    """Each action flips one of ``bits``; an episode draws bits to begin with, and others that are its goal.

    Observation: a Dict of float32 [bits] each, ``observation`` and ``achieved_goal`` (the bits) and ``desired_goal``.
    Reward: 0 where the bits are the goal's, which ends the episode, else -1; ``bits`` steps at most.
    """

    metadata = {"render_modes": []}  # noqa: RUF012

    @typed
    def __init__(self, bits: int = 8) -> None:
        self.bits = bits
        self.action_space = spaces.Discrete(bits)
        names = ("observation", "achieved_goal", "desired_goal")
        self.observation_space = spaces.Dict({name: spaces.Box(0.0, 1.0, (bits,), np.float32) for name in names})
        self._now = self._goal = np.zeros(bits, dtype=np.float32)
        self._steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._now, self._goal = self.np_random.integers(2, size=(2, self.bits)).astype(np.float32)
        if (self._now == self._goal).all():
            self._goal[self.np_random.integers(self.bits)] += 1.0
            self._goal %= 2.0
        self._steps = 0
        return self._observation(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._now = self._now.copy()
        self._now[action] = 1.0 - self._now[action]
        self._steps += 1
        success = self.compute_terminated(self._now, self._goal, {})
        reward = float(self.compute_reward(self._now, self._goal, {}))
        truncated = self._steps >= self.bits and not success
        return self._observation(), reward, success, truncated, {"success": success}

    def compute_reward(self, achieved_goal: np.ndarray, desired_goal: np.ndarray, info: object) -> np.ndarray:
        """Compute the rewards [...] of goals [..., bits]."""
        return (achieved_goal == desired_goal).all(axis=-1) - 1.0

    def compute_terminated(self, achieved_goal: np.ndarray, desired_goal: np.ndarray, info: object) -> bool:
        """Return whether an episode ends at a goal [bits]."""
        return bool((achieved_goal == desired_goal).all())

    def _observation(self) -> dict[str, np.ndarray]:
        return {"observation": self._now, "achieved_goal": self._now, "desired_goal": self._goal}
