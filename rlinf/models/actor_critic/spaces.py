"""Gymnasium observations as flat mappings of arrays, under the names that `Batch.inputs` uses.

A plain space has one leaf called ``observation``; a Dict or Tuple space has one leaf per entry, ``observation.<key>``,
nested names joined by dots. Everything downstream sees leaves only, so no other module asks what kind of space it has.
Text is a leaf of UTF-8 bytes, uint8 [max_length], zeros after the end: what they mean is the policy's affair.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from gymnasium import spaces

ROOT = "observation"
Arrays = dict[str, np.ndarray]


def observation_leaves(space: spaces.Space, name: str = ROOT) -> dict[str, spaces.Space]:
    """Name and space of every leaf. One without a fixed size (Graph, Sequence) is a TypeError with advice."""
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
    raise TypeError(
        f"{name}: observations of type {type(space).__name__} have no fixed shape; turn them into a Box first, "
        "by a wrapper (env.wrappers)"
    )


def write_observation(target: Arrays, row: int, observation: object, name: str = ROOT) -> None:
    """Copies one env's observation into row ``row`` of the stacked leaves ``target`` ([N, ...] each)."""
    if isinstance(observation, Mapping):
        for key, part in observation.items():
            write_observation(target, row, part, f"{name}.{key}")
    elif isinstance(observation, tuple):
        for key, part in enumerate(observation):
            write_observation(target, row, part, f"{name}.{key}")
    elif isinstance(observation, str):
        target[name][row] = text_bytes(observation, target[name].shape[1], name)
    else:
        target[name][row] = observation


def text_bytes(text: str, length: int, name: str = ROOT) -> np.ndarray:
    """uint8 [length]. A text that is longer than its space allows is a ValueError."""
    encoded = text.encode()
    if len(encoded) > length:
        raise ValueError(f"{name}: {text!r} has {len(encoded)} bytes, more than the {length} of its Text space")
    return np.frombuffer(encoded.ljust(length, b"\0"), dtype=np.uint8)


def stacked_leaves(observation: object, name: str = ROOT) -> Arrays:
    """The leaves of an observation that is stacked already ([N, ...], as a gymnasium vector env returns it)."""
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
