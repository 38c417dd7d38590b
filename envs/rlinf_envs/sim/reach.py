"""A point in a box that is to reach a goal, paid for nothing else: the smallest task with a sparse reward."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from rlinf_envs.typed import typed


class SparseReachEnv(gymnasium.Env):
    """A point moves in [-1, 1]^3 towards a goal that each episode draws.

    Observation: float32 [6], the point and the way from it to the goal. Action: the move, [-1, 1] a side. Reward:
    0 within ``tolerance`` of the goal, else -1; nothing ends an episode before ``max_steps``. ``info["success"]``
    reports whether the point is there. A move is ``reach`` long at most, a side.
    """

    metadata = {"render_modes": []}  # noqa: RUF012

    @typed
    def __init__(self, max_steps: int = 25, reach: float = 0.1, tolerance: float = 0.1) -> None:
        self.max_steps, self.reach, self.tolerance = max_steps, reach, tolerance
        self.action_space = spaces.Box(-1.0, 1.0, (3,), np.float32)
        self.observation_space = spaces.Box(-2.0, 2.0, (6,), np.float32)
        self._point = self._goal = np.zeros(3)
        self._steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._point, self._goal = self.np_random.uniform(-1.0, 1.0, (2, 3))
        self._steps = 0
        return self._observation(), {}

    def step(self, action: np.ndarray) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        move = np.clip(np.asarray(action, dtype=np.float64), -1.0, 1.0) * self.reach
        self._point = np.clip(self._point + move, -1.0, 1.0)
        self._steps += 1
        success = bool(np.linalg.norm(self._goal - self._point) < self.tolerance)
        return self._observation(), float(success) - 1.0, False, self._steps >= self.max_steps, {"success": success}

    def expert_action(self) -> np.ndarray:
        """Straight to the goal: float32 [3]."""
        return np.clip((self._goal - self._point) / self.reach, -1.0, 1.0).astype(np.float32)

    def _observation(self) -> np.ndarray:
        return np.concatenate([self._point, self._goal - self._point]).astype(np.float32)
