"""gymnax: environments in JAX, thousands of which step in one compiled call.

`env.id: rlinf_envs.sim.gymnax:make` with `env.kwargs: {task: CartPole-v1}` and `env.vectorization: native`.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from rlinf_envs.sim import MissingSimulatorError
from rlinf_envs.sim.jax_batch import Functional, JaxBatchEnv


def make(num_envs: int, task: str = "CartPole-v1") -> JaxBatchEnv:
    """Build a batch of ``task``.

    An episode that reaches gymnax's own limit of steps is truncated, any other end is a termination."""
    return JaxBatchEnv(num_envs, _functional(task))


@cache
def _functional(task: str) -> Functional:
    try:
        import gymnax
    except ImportError as error:
        raise MissingSimulatorError("gymnax", extra="gymnax") from error
    env, params = gymnax.make(task)
    # The limit is kept outside, so that a truncation is not taken for a termination.
    endless = params.replace(max_steps_in_episode=np.iinfo(np.int32).max)

    def advance(key: Any, state: Any, action: Any) -> tuple[Any, Any, Any, Any]:
        seen, after, reward, done, _ = env.step_env(key, state, action, endless)
        return seen, after, reward, done

    return Functional(
        _space(env.observation_space(params)),
        _space(env.action_space(params)),
        lambda key: env.reset_env(key, endless),
        advance,
        int(params.max_steps_in_episode),
    )


def _space(space: Any) -> gymnasium.Space:
    """gymnax's spaces as gymnasium's."""
    if hasattr(space, "n"):
        return spaces.Discrete(int(space.n))
    low, high = (np.broadcast_to(np.asarray(bound, np.float32), space.shape) for bound in (space.low, space.high))
    return spaces.Box(low, high, dtype=np.float32)
