"""A wrapper that breaks on purpose: for testing that training survives environments which do."""

from __future__ import annotations

import time
from typing import Any

import gymnasium
import numpy as np

from rlinf_envs.typed import typed


class SimulatedFaultError(RuntimeError):
    """The error that :class:`Faulty` raises."""


class Faulty(gymnasium.Wrapper):
    """Raises, hangs or returns NaN about once in N steps (0: never); an episode draws its faults from its seed."""

    def __init__(
        self, env: gymnasium.Env, raise_every: int = 0, hang_every: int = 0, nan_every: int = 0, hang_s: float = 3600.0
    ) -> None:
        super().__init__(env)
        self.odds = [(raise_every, self._raise), (hang_every, self._hang), (nan_every, self._nan)]
        self.hang_s = hang_s
        self.generator = np.random.default_rng(0)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        if seed is not None:
            self.generator = np.random.default_rng(seed)
        return self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        for every, fault in self.odds:
            if every and self.generator.random() < 1.0 / every:
                reward = fault()
        return observation, reward, terminated, truncated, info

    def _raise(self) -> float:
        raise SimulatedFaultError("a simulated fault")

    def _hang(self) -> float:
        time.sleep(self.hang_s)
        return 0.0

    def _nan(self) -> float:
        return float("nan")


@typed
def faulty_cartpole(
    raise_every: int = 0, hang_every: int = 0, nan_every: int = 0, hang_s: float = 3600.0
) -> gymnasium.Env:
    """CartPole that breaks (`rlinf_envs:rlinf/FaultyCartPole-v0`)."""
    return Faulty(gymnasium.make("CartPole-v1"), raise_every, hang_every, nan_every, hang_s)
