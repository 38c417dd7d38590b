"""Brax and MuJoCo Playground: rigid bodies in JAX, thousands of which step in one compiled call.

`env.id: rlinf_envs.sim.brax:make` with `env.kwargs: {task: inverted_pendulum}`, or
`rlinf_envs.sim.brax:make_playground` with `{task: CartpoleBalance}` (MuJoCo's MJX), and `env.vectorization: native`.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from rlinf_envs.sim import MissingSimulatorError
from rlinf_envs.sim.jax_batch import Functional, JaxBatchEnv


def make(
    num_envs: int, task: str = "inverted_pendulum", backend: str = "generalized", max_episode_steps: int = 1000
) -> JaxBatchEnv:
    """Build a batch of one of Brax's own tasks.

    ``backend``: its physics (`generalized`, `positional`, `spring`, `mjx`)."""
    return JaxBatchEnv(num_envs, _brax(task, backend, max_episode_steps))


def make_playground(num_envs: int, task: str = "CartpoleBalance", max_episode_steps: int = 1000) -> JaxBatchEnv:
    """Build a batch of one of MuJoCo Playground's tasks; those of robots need files that it downloads."""
    return JaxBatchEnv(num_envs, _playground(task, max_episode_steps))


@cache
def _brax(task: str, backend: str, limit: int) -> Functional:
    try:
        from brax import envs
    except ImportError as error:
        raise MissingSimulatorError("Brax", extra="brax") from error
    return _functional(envs.get_environment(task, backend=backend), limit)


@cache
def _playground(task: str, limit: int) -> Functional:
    try:
        from mujoco_playground import registry
    except ImportError as error:
        raise MissingSimulatorError("MuJoCo Playground", extra="playground") from error
    return _functional(registry.load(task), limit)


def _functional(env: Any, limit: int) -> Functional:
    """Both have Brax's interface: a state that holds observation, reward and end. Actions are in [-1, 1]."""

    def begin(key: Any) -> tuple[Any, Any]:
        state = env.reset(key)
        return state.obs, state

    def advance(_key: Any, state: Any, action: Any) -> tuple[Any, Any, Any, Any]:
        after = env.step(state, action)
        return after.obs, after, after.reward, after.done > 0

    actions = spaces.Box(-1.0, 1.0, (int(env.action_size),), np.float32)
    return Functional(_observations(env.observation_size), actions, begin, advance, limit)


def _observations(size: Any) -> gymnasium.Space:
    """Build the space of a number, a shape, or a mapping of these by name."""
    if isinstance(size, dict):
        return spaces.Dict({name: _observations(part) for name, part in size.items()})
    shape = tuple(size) if isinstance(size, tuple) else (int(size),)
    return spaces.Box(-np.inf, np.inf, shape, np.float32)
