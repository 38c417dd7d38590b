"""Native vector envs whose sub-environments can be put into the start state of a seed.

One call a step, and the same episodes as one environment a sub-environment would give, bit for bit.

Gymnasium has no call for that. If an implementation keeps its whole state in arrays, a start can be written
there: a single environment is reset with the seed, and its state copied. The implementations that do are
named below. That the episodes really are the same is checked where sub-environments are chosen
(`vectorize.py`). So another version of gymnasium can cost speed, and never change a result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlinf.data.spaces import empty_leaves
from rlinf.rollouts.vec_env.arrays import host_leaves
from rlinf.rollouts.vec_env.make_env import make_env, make_native_env, native_entry_point
from rlinf.rollouts.vec_env.native import success_of_info
from rlinf.rollouts.vec_env.vec_env import ObservationCheck, StepResult, close_quietly
from rlinf.schema import EnvConfig

# Entry points that keep `state` [S, N], `steps` [N] and `prev_done` [N], S being the state of the single environment.
_STATE_ARRAYS = frozenset({"gymnasium.envs.classic_control.cartpole:CartPoleVectorEnv"})


def can_be_seeded(options: EnvConfig) -> bool:
    """Return whether :class:`SeededNativeVecEnv` supports this environment's vector implementation."""
    return native_entry_point(options.id) in _STATE_ARRAYS


class SeededNativeVecEnv:
    """Fits `VecEnv`. A subset of sub-environments can be stepped too: the state of the others is put back
    afterwards."""

    def __init__(self, options: EnvConfig, num_envs: int) -> None:
        self._env: Any = make_native_env(options, num_envs)
        self._single: Any = make_env(options).unwrapped
        self._success_key = options.success_key
        self.num_envs = num_envs
        self.last_failure = ""  # nothing raises here: a sub-environment fails by a non-finite value
        self.observation_space = self._env.single_observation_space
        self.action_space = self._env.single_action_space
        self._check = ObservationCheck(self.observation_space)
        self._env.reset(seed=0)
        # Not its own arrays: they lie sub-environments last, and a matrix product of such rounds differently.
        self.observations = empty_leaves(self.observation_space, (num_envs,))

    def reset(self, env_indices: Sequence[int], seeds: Sequence[int]) -> dict[int, str]:
        for env_index, seed in zip(env_indices, seeds, strict=True):
            observation, _ = self._single.reset(seed=int(seed) % 2**31)
            self._env.state[:, env_index] = self._single.state
            self._env.steps[env_index] = 0
            for name, leaf in host_leaves(observation).items():
                self.observations[name][env_index] = leaf
        return {}

    def step(self, env_indices: Sequence[int], actions: np.ndarray, *, observe: bool = True) -> StepResult:
        if len(env_indices) == self.num_envs and list(env_indices) == list(range(self.num_envs)):
            return self._step_all(env_indices, actions)
        everyone = np.zeros((self.num_envs, *actions.shape[1:]), dtype=actions.dtype)
        index = np.asarray(env_indices, dtype=np.int64)
        everyone[index] = actions
        others = np.setdiff1d(np.arange(self.num_envs), index)
        state, steps = self._env.state[:, others].copy(), self._env.steps[others].copy()
        seen = {name: leaf[others].copy() for name, leaf in self.observations.items()}
        whole = self._step_all(range(self.num_envs), everyone)
        self._env.state[:, others], self._env.steps[others] = state, steps
        for name, leaf in seen.items():
            self.observations[name][others] = leaf
        return whole.of(env_indices)

    def _step_all(self, env_indices: Sequence[int], actions: np.ndarray) -> StepResult:
        observations, rewards, terminated, truncated, info = self._env.step(actions)
        self._env.prev_done[:] = False  # no reset of its own: the caller names the seed of the next episode
        for name, leaf in host_leaves(observations).items():
            self.observations[name][:] = leaf
        has_success = success_of_info(info, self._success_key, self.num_envs)
        result = StepResult(np.asarray(rewards, dtype=np.float64), terminated, truncated, *has_success, failed={})
        wrong = self._check.mark(result.failed, env_indices, self.observations, result.rewards)
        self.last_failure = wrong or self.last_failure
        return result

    def restart(self, env_index: int) -> None:
        """Nothing to do: the reset that follows overwrites all that a sub-environment has."""

    def close(self) -> None:
        close_quietly(self._single)
        self._env.close()
