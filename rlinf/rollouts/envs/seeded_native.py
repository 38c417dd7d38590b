"""Native vector envs whose lanes can be put into the start state of a seed: one call a step, and the same episodes as
one environment a lane would give, bit for bit.

Gymnasium has no call for that. Where an implementation keeps its whole state in arrays, a start can be written there:
a single environment is reset with the seed, and its state copied. Which implementations do is named below. That the
episodes really are the same is checked where lanes are chosen (`vectorize.py`): another version of gymnasium can cost
speed, and never change a result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlinf.config.schema import EnvConfig
from rlinf.rollouts.envs.make_env import make_env, make_native_env, native_entry_point
from rlinf.rollouts.envs.native import told_of_success
from rlinf.rollouts.envs.vec_env import StepResult, close_quietly, mark_not_a_number
from rlinf.spaces import empty_leaves, stacked_leaves

# Entry points that keep `state` [S, N], `steps` [N] and `prev_done` [N], S being the state of the single environment.
_STATE_ARRAYS = frozenset({"gymnasium.envs.classic_control.cartpole:CartPoleVectorEnv"})


def can_be_seeded(options: EnvConfig) -> bool:
    """Whether :class:`SeededNativeVecEnv` knows this environment's vector implementation."""
    return native_entry_point(options.id) in _STATE_ARRAYS


class SeededNativeVecEnv:
    """Fits `VecEnv`. A subset of lanes can be stepped too: the state of the others is put back afterwards."""

    def __init__(self, options: EnvConfig, num_lanes: int) -> None:
        self._env: Any = make_native_env(options, num_lanes)
        self._single: Any = make_env(options).unwrapped
        self._success_key = options.success_key
        self.num_lanes = num_lanes
        self.last_failure = ""  # nothing raises here: a lane fails by a number that is none
        self.observation_space = self._env.single_observation_space
        self.action_space = self._env.single_action_space
        self._env.reset(seed=0)
        # Not its own arrays: they lie lanes last, and a matrix product of such rounds differently.
        self.observations = empty_leaves(self.observation_space, (num_lanes,))

    def reset(self, lanes: Sequence[int], seeds: Sequence[int]) -> dict[int, str]:
        for lane, seed in zip(lanes, seeds, strict=True):
            observation, _ = self._single.reset(seed=int(seed) % 2**31)
            self._env.state[:, lane] = self._single.state
            self._env.steps[lane] = 0
            for name, leaf in stacked_leaves(observation).items():
                self.observations[name][lane] = leaf
        return {}

    def step(self, lanes: Sequence[int], actions: np.ndarray) -> StepResult:
        if len(lanes) == self.num_lanes and list(lanes) == list(range(self.num_lanes)):
            return self._step_all(lanes, actions)
        everyone = np.zeros((self.num_lanes, *actions.shape[1:]), dtype=actions.dtype)
        index = np.asarray(lanes, dtype=np.int64)
        everyone[index] = actions
        others = np.setdiff1d(np.arange(self.num_lanes), index)
        state, steps = self._env.state[:, others].copy(), self._env.steps[others].copy()
        seen = {name: leaf[others].copy() for name, leaf in self.observations.items()}
        whole = self._step_all(range(self.num_lanes), everyone)
        self._env.state[:, others], self._env.steps[others] = state, steps
        for name, leaf in seen.items():
            self.observations[name][others] = leaf
        failed = {position: whole.failed[lane] for position, lane in enumerate(lanes) if lane in whole.failed}
        columns = (whole.rewards, whole.terminated, whole.truncated, whole.success, whole.told)
        return StepResult(*(column[index] for column in columns), failed=failed)

    def _step_all(self, lanes: Sequence[int], actions: np.ndarray) -> StepResult:
        observations, rewards, terminated, truncated, info = self._env.step(actions)
        self._env.prev_done[:] = False  # no reset of its own: the caller names the seed of the next episode
        for name, leaf in stacked_leaves(observations).items():
            self.observations[name][:] = leaf
        told = told_of_success(info, self._success_key, self.num_lanes)
        result = StepResult(np.asarray(rewards, dtype=np.float64), terminated, truncated, *told, failed={})
        wrong = mark_not_a_number(result.failed, lanes, self.observations, result.rewards)
        self.last_failure = wrong or self.last_failure
        return result

    def restart(self, lane: int) -> None:
        """Nothing to do: the reset that follows overwrites all that a lane has."""

    def close(self) -> None:
        close_quietly(self._single)
        self._env.close()
