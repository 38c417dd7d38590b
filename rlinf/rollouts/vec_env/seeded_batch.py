"""Batch environments that start each sub-environment from a seed of its own: whole episodes in one call a step.

Such an environment declares it in ``metadata["seeds_each"]``. Its
``reset(seed=[...], options={"reset_mask": ...})`` gives each sub-environment under the mask the episode that a
batch of it alone has with that seed (autoreset mode DISABLED).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlinf.rollouts.vec_env.make_env import batch_function, make_native_env, takes_env_as_it_is
from rlinf.rollouts.vec_env.native import NativeVecEnv
from rlinf.rollouts.vec_env.vec_env import StepResult, close_quietly
from rlinf.schema import EnvConfig

SEEDS_EACH = "seeds_each"


def seeds_each(options: EnvConfig) -> bool:
    """Whether the environment is a batch whose sub-environments take a seed each."""
    if batch_function(options.id) is None or not takes_env_as_it_is(options):
        return False
    env = make_native_env(options, 1)
    try:
        return bool(env.metadata.get(SEEDS_EACH))
    finally:
        close_quietly(env)


class SeededBatchVecEnv(NativeVecEnv):
    """Fits `VecEnv` for episodes of given seeds. All are stepped, though only those requested have an episode."""

    def __init__(self, options: EnvConfig, num_envs: int) -> None:
        super().__init__(options, num_envs)
        self._seeds = np.zeros(num_envs, dtype=np.int64)

    def reset(self, env_indices: Sequence[int], seeds: Sequence[int]) -> dict[int, str]:
        """Only those named begin a new episode, each from its seed."""
        mask = np.zeros(self.num_envs, dtype=bool)
        mask[list(env_indices)] = True
        self._seeds[list(env_indices)] = [int(seed) % 2**31 for seed in seeds]
        observations, _ = self._env.reset(seed=self._seeds.tolist(), options={"reset_mask": mask})
        self._take(observations, mask)
        failed: dict[int, str] = {}
        self.last_failure = self._check.mark(failed, env_indices, self.observations) or self.last_failure
        return failed

    def step(self, env_indices: Sequence[int], actions: np.ndarray, *, observe: bool = True) -> StepResult:
        everyone = np.zeros((self.num_envs, *actions.shape[1:]), dtype=actions.dtype)
        everyone[list(env_indices)] = actions
        result = self._advance(everyone).of(env_indices)
        wrong = self._check.mark(result.failed, env_indices, self.observations, result.rewards)
        self.last_failure = wrong or self.last_failure
        return result

    def restart(self, env_index: int) -> None:
        """Nothing to do: the reset that follows overwrites all that a sub-environment has."""
