"""gymnax: environments in JAX, thousands of which step in one compiled call.

`env.id: rlinf_envs.sim.gymnax:make` with `env.kwargs: {task: CartPole-v1}` and `env.vectorization: native`.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from rlinf_envs.sim import MissingSimulatorError


class GymnaxEnv(VectorEnv):
    """Sub-environments of one gymnax task, reset one by one as they are named (autoreset mode DISABLED).

    Observations, rewards and flags are JAX arrays. An episode that reaches gymnax's own limit of steps is truncated,
    any other end is a termination. The key of an episode's start follows from the seed of the first reset.
    """

    metadata = {"autoreset_mode": AutoresetMode.DISABLED, "render_modes": []}  # noqa: RUF012

    def __init__(self, num_envs: int, task: str) -> None:
        try:
            import gymnax
            import jax
        except ImportError as error:
            raise MissingSimulatorError("gymnax", extra="gymnax") from error
        env, self._params = gymnax.make(task)
        self._jax, self.num_envs = jax, num_envs
        self._limit = int(self._params.max_steps_in_episode)
        self.single_observation_space = _space(env.observation_space(self._params))
        self.single_action_space = _space(env.action_space(self._params))
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        # The limit is kept here, so that a truncation is not taken for a termination.
        endless = self._params.replace(max_steps_in_episode=np.iinfo(np.int32).max)

        def begin(keys: Any, mask: Any, kept: Any) -> Any:
            """New episodes under ``mask``, the others as they are."""
            fresh = jax.vmap(env.reset_env, in_axes=(0, None))(keys, endless)
            return jax.tree.map(
                lambda new, old: jax.numpy.where(mask.reshape(-1, *(1,) * (new.ndim - 1)), new, old), fresh, kept
            )

        self._first = jax.jit(jax.vmap(lambda key: env.reset_env(key, endless)))
        self._begin = jax.jit(begin)
        self._step = jax.jit(jax.vmap(lambda key, state, action: env.step_env(key, state, action, endless)))
        self._seen: Any = None
        self._state: Any = None
        self._lengths = np.zeros(num_envs, dtype=np.int64)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """All of them, or those under ``options["reset_mask"]``."""
        if seed is not None or self._state is None:
            drawn = np.random.default_rng().integers(2**31) if seed is None else seed
            self._key = self._jax.random.key(int(drawn))
        mask = np.ones(self.num_envs, bool) if options is None else np.asarray(options["reset_mask"])
        keys = self._keys()
        if self._state is None:
            self._seen, self._state = self._first(keys)
        else:
            self._seen, self._state = self._begin(keys, mask, (self._seen, self._state))
        self._lengths[mask] = 0
        return self._seen, {}

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        self._seen, self._state, rewards, done, _ = self._step(self._keys(), self._state, np.asarray(actions))
        self._lengths += 1
        terminated = np.asarray(done)
        return self._seen, rewards, terminated, (self._lengths >= self._limit) & ~terminated, {}

    def _keys(self) -> Any:
        """One for each sub-environment."""
        self._key, mine = self._jax.random.split(self._key)
        return self._jax.random.split(mine, self.num_envs)


def make(num_envs: int, task: str = "CartPole-v1") -> GymnaxEnv:
    """A batch of ``task``."""
    return GymnaxEnv(num_envs, task)


def _space(space: Any) -> gymnasium.Space:
    """gymnax's spaces as gymnasium's."""
    if hasattr(space, "n"):
        return spaces.Discrete(int(space.n))
    low, high = (np.broadcast_to(np.asarray(bound, np.float32), space.shape) for bound in (space.low, space.high))
    return spaces.Box(low, high, dtype=np.float32)
