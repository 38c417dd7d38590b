"""Environments that name their legal actions."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class Doors(gymnasium.Env):
    """A row of doors: the open one is seen, and any closed one ends the episode with an error.

    ``where``: the source of the legal actions: ``info``, ``method``, ``part`` (of the observation) or ``nowhere``.
    """

    def __init__(self, doors: int = 6, where: str = "info", steps: int = 5, parts: bool = False) -> None:
        self.doors, self.where, self.length = doors, where, steps
        self.action_space: spaces.Space = spaces.MultiDiscrete([doors, 2]) if parts else spaces.Discrete(doors)
        seen = spaces.Box(0.0, 1.0, (doors,), np.float32)
        flags = spaces.MultiBinary(doors)
        self.observation_space = spaces.Dict({"seen": seen, "legal": flags}) if where == "part" else seen
        self.parts, self.played = parts, 0
        self.opened = np.zeros(doors, dtype=bool)

    def action_masks(self) -> np.ndarray:
        if self.where != "method":
            raise AttributeError
        return self.opened

    def _open(self) -> tuple[Any, dict[str, Any]]:
        self.opened = self.np_random.random(self.doors) < 0.4
        self.opened[self.np_random.integers(self.doors)] = True
        seen = self.opened.astype(np.float32)
        observation = {"seen": seen, "legal": self.opened.astype(np.int8)} if self.where == "part" else seen
        flags: Any = [self.opened, np.array([True, False])] if self.parts else self.opened
        return observation, {"legal": flags} if self.where == "info" else {}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.played = 0
        return self._open()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        chosen = int(np.asarray(action).reshape(-1)[0])
        if not self.opened[chosen] or (self.parts and int(action[1]) == 1):
            raise RuntimeError(f"door {action} is closed")
        # The last open door pays: among the legal actions there is something to learn.
        reward = float(chosen == int(np.flatnonzero(self.opened)[-1]))
        self.played += 1
        observation, info = self._open()
        return observation, reward, False, self.played >= self.length, info


gymnasium.register("Doors-v0", entry_point="masked_envs:Doors")
