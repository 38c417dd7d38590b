"""Gymnasium observations as flat mappings of arrays, under the names that `Batch.inputs` uses.

A plain space has one leaf called ``observation``; a Dict or Tuple space has one leaf per entry,
``observation.<key>``, nested names joined by dots. Everything downstream sees leaves only, so no other module
depends on the kind of space. Text is a leaf of UTF-8 bytes, uint8 [max_length], zeros after the end: their
meaning is up to the policy.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from rlinf.base.errors import UserError

ROOT = "observation"
ACTION_MASK = f"{ROOT}.action_mask"
"""The leaf that names legal actions (`env.action_mask`): 1 for those that the environment takes now, else 0."""
ADVANTAGE = "advantage_indicator"
"""Leaf of imitated decisions: 1 for one that was better than expected, 2 for one that was not, 0 if it is not given."""
_MOST_CATEGORIES = 1_000_000
Arrays = dict[str, np.ndarray]
Categories = spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary


class SpaceError(UserError, TypeError, ValueError):
    """Spaces of an environment that the chosen policy does not fit, or values that are none of their space."""


def observation_leaves(space: spaces.Space) -> dict[str, spaces.Space]:
    """Name and space of every leaf.

    Raises SpaceError for one without a fixed size (Graph, Sequence) with advice, and for two of one name.
    """
    leaves: dict[str, spaces.Space] = {}
    for name, leaf in _named_leaves(space, ROOT):
        if name in leaves:
            raise SpaceError(f"two parts of the observation are called {name}: rename one of them by a wrapper")
        leaves[name] = leaf
    if not leaves:
        raise SpaceError(f"the observation space {space} has no parts: a policy needs one at least")
    return leaves


def _named_leaves(space: spaces.Space, name: str) -> Iterator[tuple[str, spaces.Space]]:
    if isinstance(space, spaces.Dict | spaces.Tuple):
        parts = space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
        for key, part in parts:
            yield from _named_leaves(part, f"{name}.{key}")
    elif isinstance(space, (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary, spaces.Text)):
        yield name, space
    else:
        raise SpaceError(
            f"{name}: observations of type {type(space).__name__} have no fixed shape; turn them into a Box first, "
            "by a wrapper (env.wrappers). Read are Box, Discrete, MultiDiscrete, MultiBinary, Text, and Dict and Tuple "
            "of them"
        )


def require_actions(space: spaces.Space) -> None:
    """Raise SpaceError for actions that no policy here has a distribution for."""
    if not isinstance(space, (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)):
        raise SpaceError(
            f"no policy for actions of type {type(space).__name__} ({space}): one Box, Discrete, MultiDiscrete or "
            "MultiBinary is wanted. A gymnasium.ActionWrapper of your own makes it one (env.wrappers: [module:Class])"
        )


def write_observation(target: Arrays, row: int, observation: object) -> None:
    """Copy one env's observation into row ``row`` of the stacked leaves ``target`` ([N, ...] each).

    Other entries or shapes than those of ``target``, and values that its dtype does not have, are a ValueError.
    Otherwise numpy would stretch a wrong shape to the right one, make 0 of pixels in [0, 1], and what is missing
    would stay as it was.
    """
    entries = dict(observation_entries(observation, leaves=target))
    require_entries(entries, target)
    for name, entry in entries.items():
        leaf = target[name]
        if isinstance(entry, str):
            leaf[row] = text_bytes(entry, leaf.shape[1], name)
        elif np.shape(entry) != leaf.shape[1:]:
            raise ValueError(f"{name} has shape {np.shape(entry)}: the observation space has {leaf.shape[1:]}")
        else:
            leaf[row] = exactly(entry, leaf.dtype, name)


def require_entries(entries: Mapping[str, Any], target: Mapping[str, Any]) -> None:
    """Raise SpaceError for an observation that has other ``entries`` than its space, which are those of ``target``."""
    if entries.keys() == target.keys():
        return
    lacks, more = sorted(target.keys() - entries.keys()), sorted(entries.keys() - target.keys())
    words = [f"{verb} {', '.join(names)}" for verb, names in (("lacks", lacks), ("has", more)) if names]
    raise SpaceError(f"an observation {' and '.join(words)}: its observation space differs")


def exactly(values: Any, dtype: np.dtype, name: str) -> np.ndarray:
    """Cast ``values`` to ``dtype``. Floats are rounded; a whole number or a flag that would change is a SpaceError.

    >>> exactly([1.0, 2.0], np.dtype(np.uint8), "pixels").tolist()
    [1, 2]
    >>> exactly(0.9, np.dtype(np.uint8), "pixels")
    Traceback (most recent call last):
    rlinf.data.spaces.SpaceError: pixels: 0.9 is no uint8
    """
    if values is None:
        raise SpaceError(f"{name} is None, and {dtype} is wanted")
    array = np.asarray(values)
    if isinstance(values, np.ma.MaskedArray) and np.ma.getmaskarray(values).any():
        raise SpaceError(f"{name}: some entries are masked, and have no value")
    if not np.can_cast(array.dtype, dtype, "safe" if dtype.kind in "biu" else "same_kind"):
        if array.dtype.kind not in "biuf":
            raise SpaceError(f"{name} has values of type {array.dtype}, and {dtype} is wanted")
        with np.errstate(invalid="ignore"):  # of NaN
            changed = array != array.astype(dtype)
        if changed.any():
            raise SpaceError(f"{name}: {array[changed][0]} is no {dtype}")
    return array.astype(dtype, copy=False)


def category_sizes(space: Categories) -> tuple[np.ndarray, np.ndarray]:
    """Return the number of categories and the first value of each component, int64 [n] both."""
    if isinstance(space, spaces.Discrete):
        return np.array([int(space.n)]), np.array([int(space.start)])
    if isinstance(space, spaces.MultiDiscrete):
        return space.nvec.reshape(-1).astype(np.int64), space.start.reshape(-1).astype(np.int64)
    count = int(np.prod(space.shape))
    return np.full(count, 2), np.zeros(count, dtype=np.int64)


def coded_categories(
    space: spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary,
) -> tuple[np.ndarray, np.ndarray]:
    """Return :func:`category_sizes` for layers with weights of each category; raise SpaceError for too many of them."""
    sizes, starts = category_sizes(space)
    if (count := int(sizes.sum())) > _MOST_CATEGORIES:
        raise SpaceError(
            f"{space} has {count:,} categories, and a network has weights for each of at most {_MOST_CATEGORIES:,}: "
            "turn it into a Box, or into a MultiDiscrete of digits, by a wrapper (env.wrappers)"
        )
    return sizes, starts


def outside_categories(space: spaces.Space, values: np.ndarray) -> np.ndarray:
    """Return which rows of ``values`` [N, ...] have a category that ``space`` has not, [N] bool.

    >>> outside_categories(spaces.MultiDiscrete([3, 4]), np.array([[2, 3], [3, 0], [0, -1]])).tolist()
    [False, True, True]
    """
    if not isinstance(space, (spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)):
        return np.zeros(len(values), dtype=bool)
    sizes, starts = category_sizes(space)
    index = values.reshape(len(values), math.prod(values.shape[1:])) - starts
    return ((index < 0) | (index >= sizes)).any(axis=1)


def copied(observation: Any) -> Any:
    """Copy an observation: an environment may write the next one into the same arrays."""
    if isinstance(observation, Mapping):
        return {key: copied(part) for key, part in observation.items()}
    if isinstance(observation, tuple):
        parts = map(copied, observation)
        return spaces.GraphInstance(*parts) if isinstance(observation, spaces.GraphInstance) else tuple(parts)
    return observation.copy() if isinstance(observation, np.ndarray) else observation


def observation_entries(
    observation: object, name: str = ROOT, leaves: Collection[str] = ()
) -> Iterator[tuple[str, Any]]:
    """Yield name and value of every leaf of one observation; a tuple whose name is one of ``leaves`` is a value.

    >>> dict(observation_entries({"state": 1, "arms": (2, 3)}))
    {'observation.state': 1, 'observation.arms.0': 2, 'observation.arms.1': 3}
    """
    if isinstance(observation, Mapping):
        for key, part in observation.items():
            yield from observation_entries(part, f"{name}.{key}", leaves)
    elif isinstance(observation, tuple) and name not in leaves:
        for index, part in enumerate(observation):
            yield from observation_entries(part, f"{name}.{index}", leaves)
    else:
        yield name, observation


def text_bytes(text: str, length: int, name: str = ROOT) -> np.ndarray:
    """uint8 [length]. A text that is longer than its space allows is a ValueError."""
    encoded = text.encode()
    if len(encoded) > length:
        raise ValueError(f"{name}: {text!r} has {len(encoded)} bytes, more than the {length} of its Text space")
    return np.frombuffer(encoded.ljust(length, b"\0"), dtype=np.uint8)


def text_of(letters: np.ndarray) -> str:
    """Read the text of a leaf's bytes [max_length], as :func:`text_bytes` wrote it."""
    return letters.tobytes().rstrip(b"\0").decode()


def empty_leaves(space: spaces.Space, lead: Sequence[int]) -> Arrays:
    """Zeroed arrays [*lead, ...] for every leaf."""
    arrays: Arrays = {}
    for name, part in observation_leaves(space).items():
        if isinstance(part, spaces.Text):
            arrays[name] = np.zeros((*lead, part.max_length), dtype=np.uint8)
        else:
            arrays[name] = np.zeros((*lead, *(part.shape or ())), dtype=part.dtype)
    return arrays


def share_of_bounds(numbers: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Position of each number between its bounds, 0 at ``low`` and 1 at ``high``; all arrays [..., A].

    An entry with equal bounds, such as a locked joint, has one value: its position is the middle.

    >>> share_of_bounds(np.array([3.0, 7.0]), np.array([2.0, 7.0]), np.array([4.0, 7.0])).tolist()
    [0.5, 0.5]
    """
    width = high - low
    middle = np.full(np.broadcast(numbers, width).shape, 0.5)
    return np.divide(numbers - low, width, out=middle, where=np.broadcast_to(width != 0, middle.shape))
