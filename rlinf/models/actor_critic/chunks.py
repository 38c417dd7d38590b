"""Action chunks: one decision is K actions, which the environment executes one after the other."""

from __future__ import annotations

import numpy as np
from gymnasium import spaces

from rlinf.data.spaces import SpaceError, category_sizes


def chunked_space(space: spaces.Space, chunk: int) -> spaces.Space:
    """Return the space of K actions laid end to end, for which a head without support for chunks can be built."""
    if isinstance(space, spaces.Box):
        return spaces.Box(np.stack([space.low] * chunk), np.stack([space.high] * chunk), dtype=space.dtype.type)
    if isinstance(space, (spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)):
        sizes, starts = category_sizes(space)
        return spaces.MultiDiscrete(np.tile(sizes, chunk), start=np.tile(starts, chunk))
    raise SpaceError(f"no action chunks for actions of type {type(space).__name__}")


def split_chunk(actions: np.ndarray, space: spaces.Space, chunk: int) -> np.ndarray:
    """Environment actions [N, K ...] of a chunked space as [N, K, *space.shape]."""
    return actions.reshape(len(actions), chunk, *(space.shape or ()))
