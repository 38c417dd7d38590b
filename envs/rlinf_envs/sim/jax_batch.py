"""Many copies of a functional environment in JAX, stepped in one compiled call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property, partial
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space


class Compiled(NamedTuple):
    """The functions of one environment over a batch."""

    begin: Callable[[Any], tuple[Any, Any]]
    advance: Callable[[Any, Any, Any], tuple[Any, Any, Any, Any]]
    merged: Callable[[Any, Any, Any], Any]
    """A fresh state where a mask [N] is true, else the one that is kept."""


@dataclass(frozen=True, eq=False)
class Functional:
    """One environment as pure functions of JAX arrays. Batches of the same one share what is compiled."""

    observation_space: spaces.Space
    action_space: spaces.Space
    begin: Callable[[Any], tuple[Any, Any]]
    """(observation, state) of a new episode, from a random key."""
    advance: Callable[[Any, Any, Any], tuple[Any, Any, Any, Any]]
    """(observation, state, reward, terminated), from a random key, a state and an action."""
    max_episode_steps: int
    """Where episodes are truncated, which :attr:`advance` must not do itself."""

    @cached_property
    def compiled(self) -> Compiled:
        """Of any number of sub-environments: compiled once for each number, which takes half a minute for a robot."""
        import jax

        def chosen(mask: Any, new: Any, old: Any) -> Any:
            if not new.size:  # MuJoCo's contacts where nothing can touch: JAX leaves such arrays without a batch
                return new
            return jax.numpy.where(mask.reshape(-1, *(1,) * (new.ndim - 1)), new, old)

        def settled(leaf: Any) -> Any:
            # A Python number among the results has a weak type. A state with other types is another signature of
            # `advance`, for which it would be compiled again: ten seconds of one processor for an inverted pendulum.
            array = jax.numpy.asarray(leaf)
            return jax.lax.convert_element_type(array, array.dtype) if array.weak_type else array

        return Compiled(
            begin=jax.jit(jax.vmap(lambda key: jax.tree.map(settled, self.begin(key)))),
            advance=jax.jit(jax.vmap(lambda *given: jax.tree.map(settled, self.advance(*given)))),
            merged=jax.jit(lambda mask, fresh, kept: jax.tree.map(partial(chosen, mask), fresh, kept)),
        )


class Streams(NamedTuple):
    """Functions of keys [N], one for each sub-environment."""

    seeded: Callable[[Any], Any]
    """From seeds [N]."""
    chosen: Callable[[Any, Any, Any], Any]
    """The first keys where a mask [N] is true, else the second."""
    drawn: Callable[[Any], tuple[Any, Any]]
    """(the keys afterwards, a key for one call): what the key of a batch of one gives."""


@cache
def _own_streams() -> Streams:
    import jax

    def drawn(key: Any) -> tuple[Any, Any]:
        after, mine = jax.random.split(key)
        return after, jax.random.split(mine, 1)[0]

    return Streams(jax.jit(jax.vmap(jax.random.key)), jax.jit(jax.numpy.where), jax.jit(jax.vmap(drawn)))


class JaxBatchEnv(VectorEnv):
    """Sub-environments that are reset one by one as they are named (autoreset mode DISABLED).

    Observations and rewards are JAX arrays. The key of an episode's start follows from the seed of the first
    reset; or from the sub-environment's own, if a reset gives a list of seeds.
    """

    metadata = {"autoreset_mode": AutoresetMode.DISABLED, "render_modes": [], "seeds_each": True}  # noqa: RUF012

    def __init__(self, num_envs: int, env: Functional) -> None:
        import jax

        self._jax, self.num_envs, self._limit = jax, num_envs, env.max_episode_steps
        self.single_observation_space, self.single_action_space = env.observation_space, env.action_space
        self.observation_space = batch_space(env.observation_space, num_envs)
        self.action_space = batch_space(env.action_space, num_envs)
        self.functional = env
        """One of the sub-environments, for programs that step it themselves."""
        self._compiled = env.compiled
        self._key: Any = None
        self._streams = False
        """Whether the key is one for each sub-environment."""
        self._seen: Any = None
        self._state: Any = None
        self._lengths = np.zeros(num_envs, dtype=np.int64)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """All of them, or those under ``options["reset_mask"]``.

        With a list of ``seed`` [N] those have a stream each from then on, that of a batch of one with this seed.
        """
        mask = np.asarray((options or {}).get("reset_mask", np.ones(self.num_envs, bool)))
        if np.ndim(seed):
            keys = _own_streams().seeded(np.asarray(seed, np.uint32))
            self._key = _own_streams().chosen(mask, keys, self._key if self._streams else keys)
            self._streams = True
        elif seed is not None or self._state is None:
            drawn = np.random.default_rng().integers(2**31) if seed is None else seed
            self._key, self._streams = self._jax.random.key(int(drawn)), False
        before = self._key
        begun = self._compiled.begin(self._keys())
        if self._streams:  # the streams of episodes under way go on as if no other had begun
            self._key = _own_streams().chosen(mask, self._key, before)
        if self._state is not None:
            begun = self._compiled.merged(mask, begun, (self._seen, self._state))
        self._seen, self._state = begun
        self._lengths[mask] = 0
        return self._seen, {}

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        self._seen, self._state, rewards, done = self._compiled.advance(self._keys(), self._state, np.asarray(actions))
        self._lengths += 1
        terminated = np.asarray(done)
        return self._seen, rewards, terminated, (self._lengths >= self._limit) & ~terminated, {}

    def _keys(self) -> Any:
        """One for each sub-environment."""
        if self._streams:
            self._key, drawn = _own_streams().drawn(self._key)
            return drawn
        self._key, mine = self._jax.random.split(self._key)
        return self._jax.random.split(mine, self.num_envs)
