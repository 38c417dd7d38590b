"""Gymnasium observations as flat mappings of arrays, under the names that `Batch.inputs` uses.

A plain space has one leaf called ``observation``; a Dict or Tuple space has one leaf per entry,
``observation.<key>``, nested names joined by dots. Everything downstream sees leaves only, so no other module
depends on the kind of space. Text is a leaf of UTF-8 bytes, uint8 [max_length], zeros after the end: their
meaning is up to the policy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from rlinf.base.errors import UserError

ROOT = "observation"
ACTION_MASK = f"{ROOT}.action_mask"
ADVANTAGE = "advantage_indicator"
"""Leaf of imitated decisions: 1 for one that was better than expected, 2 for one that was not, 0 if it is not given."""
"""The leaf that names legal actions (`env.action_mask`): 1 for those that the environment takes now, else 0."""
Arrays = dict[str, np.ndarray]


class SpaceError(UserError, TypeError, ValueError):
    """Spaces of an environment that the chosen policy does not fit; the message names what would."""


def observation_leaves(space: spaces.Space, name: str = ROOT) -> dict[str, spaces.Space]:
    """Name and space of every leaf. One without a fixed size (Graph, Sequence) is a SpaceError with advice."""
    if isinstance(space, spaces.Dict):
        return {
            n: s for key, part in space.spaces.items() for n, s in observation_leaves(part, f"{name}.{key}").items()
        }
    if isinstance(space, spaces.Tuple):
        return {
            n: s for key, part in enumerate(space.spaces) for n, s in observation_leaves(part, f"{name}.{key}").items()
        }
    if isinstance(space, (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary, spaces.Text)):
        return {name: space}
    raise SpaceError(
        f"{name}: observations of type {type(space).__name__} have no fixed shape; turn them into a Box first, "
        "by a wrapper (env.wrappers)"
    )


def write_observation(target: Arrays, row: int, observation: object) -> None:
    """Copy one env's observation into row ``row`` of the stacked leaves ``target`` ([N, ...] each).

    Other entries or shapes than those of ``target`` are a ValueError. Otherwise numpy would stretch a wrong shape
    to the right one, and what is missing would stay as it was.
    """
    entries = dict(observation_entries(observation))
    if entries.keys() != target.keys():
        lacks, more = sorted(target.keys() - entries.keys()), sorted(entries.keys() - target.keys())
        words = [f"{verb} {', '.join(names)}" for verb, names in (("lacks", lacks), ("has", more)) if names]
        raise ValueError(f"an observation {' and '.join(words)}: the observation space says otherwise")
    for name, entry in entries.items():
        leaf = target[name]
        if isinstance(entry, str):
            leaf[row] = text_bytes(entry, leaf.shape[1], name)
        elif np.shape(entry) != leaf.shape[1:]:
            raise ValueError(f"{name} has shape {np.shape(entry)}: the observation space says {leaf.shape[1:]}")
        else:
            leaf[row] = entry


def observation_entries(observation: object, name: str = ROOT) -> Iterator[tuple[str, Any]]:
    """Yield name and value of every leaf of one observation.

    >>> dict(observation_entries({"state": 1, "arms": (2, 3)}))
    {'observation.state': 1, 'observation.arms.0': 2, 'observation.arms.1': 3}
    """
    if isinstance(observation, Mapping):
        for key, part in observation.items():
            yield from observation_entries(part, f"{name}.{key}")
    elif isinstance(observation, tuple):
        for index, part in enumerate(observation):
            yield from observation_entries(part, f"{name}.{index}")
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


def stacked_leaves(observation: object, name: str = ROOT) -> Arrays:
    """Return the leaves of an observation that is stacked already ([N, ...], as a gymnasium vector env returns it)."""
    if isinstance(observation, Mapping):
        return {n: a for key, part in observation.items() for n, a in stacked_leaves(part, f"{name}.{key}").items()}
    if isinstance(observation, tuple):
        return {n: a for key, part in enumerate(observation) for n, a in stacked_leaves(part, f"{name}.{key}").items()}
    return {name: np.asarray(observation)}


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
