"""One environment in another interpreter, as a gymnasium environment like any other."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from rlinf.data.spaces import ROOT, Arrays, text_of
from rlinf.rollouts.isolation.process import EnvProcessError
from rlinf.rollouts.isolation.vec_env import IsolatedVecEnv
from rlinf.rollouts.vec_env.make_env import make_env
from rlinf.schema import EnvConfig


def make_env_anywhere(options: EnvConfig) -> gymnasium.Env:
    """Make the environment of ``options`` in this process, or in the one that `env.isolation` selects."""
    return IsolatedEnv(options) if options.isolation == "process" else make_env(options)


class IsolatedEnv(gymnasium.Env):
    """Raises EnvProcessError with the other side's account if a reset or a step fails."""

    def __init__(self, options: EnvConfig) -> None:
        self._vec_env = IsolatedVecEnv(options, 1)
        self._success_key = options.success_key
        self.observation_space, self.action_space = self._vec_env.observation_space, self._vec_env.action_space
        self.metadata = dict(self._vec_env.metadata)
        self.draws_observations = True
        """While it is false, the other side may leave pictures out of observations."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """``options`` do not reach the other side: there are none."""
        super().reset(seed=seed)
        drawn = int(self.np_random.integers(2**31)) if seed is None else seed
        if self._vec_env.reset([0], [drawn]):
            raise EnvProcessError(self._vec_env.last_failure)
        return self._observation(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        result = self._vec_env.step([0], np.asarray(action)[None], observe=self.draws_observations)
        if result.failed:
            raise EnvProcessError(self._vec_env.last_failure)
        info = {self._success_key: bool(result.success[0])} if result.has_success[0] else {}
        ends = bool(result.terminated[0]), bool(result.truncated[0])
        return self._observation(), float(result.rewards[0]), *ends, info

    def expert_action(self) -> np.ndarray:
        """Return the current action of the environment's own demonstrator."""
        return self._vec_env.expert_action(0)

    def has_wrapper_attr(self, name: str) -> bool:
        return self._vec_env.demonstrates if name == "expert_action" else super().has_wrapper_attr(name)

    def close(self) -> None:
        self._vec_env.close()

    def _observation(self) -> Any:
        return _unflattened(self.observation_space, self._vec_env.observations, 0)


def _unflattened(space: spaces.Space, leaves: Arrays, row: int, name: str = ROOT) -> Any:
    """Read the observation in row ``row`` of the leaves [N, ...] (`data.spaces`); a text is its bytes before zeros."""
    if isinstance(space, spaces.Dict):
        return {key: _unflattened(part, leaves, row, f"{name}.{key}") for key, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_unflattened(part, leaves, row, f"{name}.{key}") for key, part in enumerate(space.spaces))
    if isinstance(space, spaces.Text):
        return text_of(leaves[name][row])
    return leaves[name][row].copy()
