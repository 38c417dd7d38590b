"""A batch environment whose sub-environments take a seed each, without a library of its own."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space


class Walks(VectorEnv):
    """A walker of each sub-environment on a line: it starts and is pushed by its own seed, and ends beyond 3."""

    metadata: ClassVar[dict[str, Any]] = {"autoreset_mode": AutoresetMode.DISABLED, "seeds_each": True}
    calls = 0
    """Steps of all batches."""

    def __init__(self, num_envs: int, breaks_at: float) -> None:
        self.num_envs, self.breaks_at = num_envs, breaks_at
        self.single_observation_space = spaces.Box(-9.0, 9.0, (1,), np.float32)
        self.single_action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.generators: list[Any] = [None] * num_envs
        self.positions = np.zeros((num_envs, 1), np.float32)
        self.lengths = np.zeros(num_envs, int)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        seeds = np.broadcast_to(np.asarray(0 if seed is None else seed), self.num_envs)
        mask = (options or {}).get("reset_mask", np.ones(self.num_envs, bool))
        for number in np.nonzero(mask)[0].tolist():
            self.generators[number] = np.random.default_rng(int(seeds[number]))
            self.positions[number], self.lengths[number] = self.generators[number].normal(), 0
        return self.positions.copy(), {}

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        type(self).calls += 1
        pushes = [0.3 * one.normal() if one is not None else 0.0 for one in self.generators]
        self.positions += (0.2 * np.asarray(actions) + np.asarray(pushes)[:, None]).astype(np.float32)
        self.lengths += 1
        over = np.abs(self.positions[:, 0]) > 3
        rewards = np.where(self.positions[:, 0] > self.breaks_at, np.nan, self.positions[:, 0])
        return self.positions.copy(), rewards, over, (self.lengths >= 40) & ~over, {}


def make(num_envs: int, breaks_at: float = 9.0) -> Walks:
    return Walks(num_envs, breaks_at)


def make_of_one_stream(num_envs: int) -> Walks:
    """A batch that does not declare that it takes a seed for each."""
    made = Walks(num_envs, 9.0)
    made.metadata = {"autoreset_mode": AutoresetMode.DISABLED}  # type: ignore[misc]
    return made
