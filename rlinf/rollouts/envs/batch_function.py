"""Batch environments that nobody registered: `env.id: module:function` makes a gymnasium vector env of N.

``function(num_envs=N, **env.kwargs)`` returns a `gymnasium.vector.VectorEnv`. Where a single environment is needed (for
evaluation from given seeds, for `rlinf check`) it is asked for one sub-environment.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import VectorEnv

from rlinf.rollouts.envs.arrays import host_array, like_observations

MakeBatch = Callable[..., VectorEnv]


def batch_function(env_id: str) -> MakeBatch | None:
    """The function that `module:function` names; None where the id is that of a registered environment, or of none."""
    module, colon, name = env_id.rpartition(":")
    if not colon or name in gymnasium.registry or not name.isidentifier():
        return None
    found = getattr(importlib.import_module(module), name, None)
    return found if callable(found) else None


class SingleOfBatch(gymnasium.Env):
    """A batch environment of one sub-environment as a plain environment, which is reset by whoever steps it."""

    def __init__(self, make: MakeBatch, kwargs: Mapping[str, Any]) -> None:
        self._env = make(num_envs=1, **kwargs)
        self.observation_space = self._env.single_observation_space
        self.action_space = self._env.single_action_space
        self.metadata = dict(self._env.metadata)
        self._seen: Any = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._seen, _ = self._env.reset(seed=seed, options=options)
        return _first(self._seen), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        actions = like_observations(np.asarray(action)[None], self._seen)
        self._seen, reward, terminated, truncated, info = self._env.step(actions)
        ends = bool(host_array(terminated)[0]), bool(host_array(truncated)[0])
        final = info.get("final_obs", info.get("final_observation")) if any(ends) else None
        said = info.get("final_info", info) if any(ends) else info
        facts = {name: _first(value) for name, value in said.items() if np.ndim(value) and not name.startswith("final")}
        return _first(self._seen if final is None else final), float(host_array(reward)[0]), *ends, facts

    def close(self) -> None:
        self._env.close()


def _first(values: Any) -> Any:
    """The values of the one sub-environment, as a copy: the batch may write over it."""
    if isinstance(values, Mapping):
        return {name: _first(part) for name, part in values.items()}
    if isinstance(values, tuple):
        return tuple(_first(part) for part in values)
    row = host_array(values)[0]
    return row.copy() if isinstance(row, np.ndarray) else row
