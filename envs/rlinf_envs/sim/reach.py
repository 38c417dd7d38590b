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

    With ``goals`` the observation is a Dict of float32 [3] each: ``observation`` and ``achieved_goal`` are the point,
    ``desired_goal`` is the goal.
    """

    metadata = {"render_modes": []}  # noqa: RUF012

    @typed
    def __init__(self, max_steps: int = 25, reach: float = 0.1, tolerance: float = 0.1, goals: bool = False) -> None:
        self.max_steps, self.reach, self.tolerance, self.goals = max_steps, reach, tolerance, goals
        self.action_space = spaces.Box(-1.0, 1.0, (3,), np.float32)
        names = ("observation", "achieved_goal", "desired_goal")
        parts: dict[str, spaces.Space[Any]] = {name: spaces.Box(-1.0, 1.0, (3,), np.float32) for name in names}
        self.observation_space = spaces.Dict(parts) if goals else spaces.Box(-2.0, 2.0, (6,), np.float32)
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
        reward = float(self.compute_reward(self._point, self._goal, {}))
        return self._observation(), reward, False, self._steps >= self.max_steps, {"success": reward == 0.0}

    def compute_reward(self, achieved_goal: np.ndarray, desired_goal: np.ndarray, info: object) -> np.ndarray:
        """Compute the rewards [...] of points and goals [..., 3]."""
        return (np.linalg.norm(desired_goal - achieved_goal, axis=-1) < self.tolerance) - 1.0

    def expert_action(self) -> np.ndarray:
        """Straight to the goal: float32 [3]."""
        return np.clip((self._goal - self._point) / self.reach, -1.0, 1.0).astype(np.float32)

    def _observation(self) -> np.ndarray | dict[str, np.ndarray]:
        if self.goals:
            point, goal = self._point.astype(np.float32), self._goal.astype(np.float32)
            return {"observation": point, "achieved_goal": point, "desired_goal": goal}
        return np.concatenate([self._point, self._goal - self._point]).astype(np.float32)
