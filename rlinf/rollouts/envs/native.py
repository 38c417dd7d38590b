"""Environments that bring a vector implementation of their own: one call steps them all.

Such environments reset their lanes themselves, from one stream of their own. So their episodes have no seeds: groups
of equal starts, evaluation on fixed starts and exact resuming need the other kinds of lanes (`seeded_native.py` for the
vector implementations that it knows).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode

from rlinf.rollouts.envs.make_env import EnvOptions, make_native_env
from rlinf.rollouts.envs.vec_env import StepResult, mark_not_a_number
from rlinf.spaces import stacked_leaves


class NativeVecEnv:
    """Fits `VecEnv` for fragments: all lanes step together, and a lane's reset takes a step of its own."""

    def __init__(self, options: EnvOptions, num_lanes: int) -> None:
        self._options = options
        self._env = make_native_env(options, num_lanes)
        mode = self._env.metadata.get("autoreset_mode")
        if mode not in (AutoresetMode.NEXT_STEP, None):
            raise ValueError(f"{options.id}: native vector env with autoreset mode {mode}; only NEXT_STEP is read here")
        self.num_lanes = num_lanes
        self.last_failure = ""
        self.observation_space = self._env.single_observation_space
        self.action_space = self._env.single_action_space
        self.observations = stacked_leaves(self._env.observation_space.sample())
        self._over = np.zeros(num_lanes, dtype=bool)
        self._started = False

    def reset(self, lanes: Sequence[int], seeds: Sequence[int]) -> dict[int, str]:
        """The first call seeds the environment's stream with the first seed; later ones are done by the environment."""
        if not self._started:
            observations, _ = self._env.reset(seed=int(seeds[0]) % 2**31)
            self._take(observations)
            self._started = True
        return {}

    def step(self, lanes: Sequence[int], actions: np.ndarray) -> StepResult:
        """All lanes at once; ``idle`` where the environment spent the step on a reset."""
        observations, rewards, terminated, truncated, info = self._env.step(actions)
        self._take(observations)
        told = told_of_success(info, self._options.success_key, self.num_lanes)
        result = StepResult(
            np.asarray(rewards, dtype=np.float64), terminated, truncated, *told, failed={}, idle=self._over.copy()
        )
        self._over = terminated | truncated
        wrong = mark_not_a_number(result.failed, lanes, self.observations, result.rewards)
        if wrong:
            raise FloatingPointError(f"{self._options.id}: {wrong}, and a native vector env can not restart one lane")
        return result

    def restart(self, lane: int) -> None:
        raise RuntimeError(f"{self._options.id}: a native vector env can not restart one of its lanes")

    def close(self) -> None:
        self._env.close()

    def _take(self, observations: Any) -> None:
        for name, leaf in stacked_leaves(observations).items():
            self.observations[name] = leaf.copy()


def told_of_success(info: Mapping[str, Any], key: str, num_lanes: int) -> tuple[np.ndarray, np.ndarray]:
    """(success, whether the lane told it), bool [N] each, of a vector env's info.

    Beside what its lanes say under ``key``, gymnasium keeps under ``_key`` which of them said anything.
    """
    if key not in info:
        return np.zeros(num_lanes, dtype=bool), np.zeros(num_lanes, dtype=bool)
    told = np.array(info.get(f"_{key}", np.ones(num_lanes, dtype=bool)), dtype=bool)
    return np.asarray(info[key]).astype(bool) & told, told
