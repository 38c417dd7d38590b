"""Gymnasium observations as flat mappings of arrays, under the names that `Batch.inputs` uses.

A plain space has one leaf called ``observation``; a Dict or Tuple space has one leaf per entry, ``observation.<key>``,
nested names joined by dots. Everything downstream sees leaves only, so no other module asks what kind of space it has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from gymnasium import spaces

ROOT = "observation"
Arrays = dict[str, np.ndarray]


def observation_leaves(space: spaces.Space, name: str = ROOT) -> dict[str, spaces.Space]:
    """Name and space of every leaf. One without a fixed shape (Text, Graph, Sequence) is a TypeError with advice."""
    if isinstance(space, spaces.Dict):
        return {
            n: s for key, part in space.spaces.items() for n, s in observation_leaves(part, f"{name}.{key}").items()
        }
    if isinstance(space, spaces.Tuple):
        return {
            n: s for key, part in enumerate(space.spaces) for n, s in observation_leaves(part, f"{name}.{key}").items()
        }
    if isinstance(space, (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)):
        return {name: space}
    raise TypeError(
        f"{name}: observations of type {type(space).__name__} have no fixed shape; turn them into a Box first "
        "(env.wrappers: ['rlinf.rollouts.wrappers:TokenizeText'] does so for text)"
    )


def write_observation(target: Arrays, row: int, observation: object, name: str = ROOT) -> None:
    """Copies one env's observation into row ``row`` of the stacked leaves ``target`` ([N, ...] each)."""
    if isinstance(observation, Mapping):
        for key, part in observation.items():
            write_observation(target, row, part, f"{name}.{key}")
    elif isinstance(observation, tuple):
        for key, part in enumerate(observation):
            write_observation(target, row, part, f"{name}.{key}")
    else:
        target[name][row] = observation


def stacked_leaves(observation: object, name: str = ROOT) -> Arrays:
    """The leaves of an observation that is stacked already ([N, ...], as a gymnasium vector env returns it)."""
    if isinstance(observation, Mapping):
        return {n: a for key, part in observation.items() for n, a in stacked_leaves(part, f"{name}.{key}").items()}
    if isinstance(observation, tuple):
        return {n: a for key, part in enumerate(observation) for n, a in stacked_leaves(part, f"{name}.{key}").items()}
    return {name: np.asarray(observation)}


def empty_leaves(space: spaces.Space, lead: Sequence[int]) -> Arrays:
    """Zeroed arrays [*lead, ...] for every leaf."""
    leaves = observation_leaves(space)
    return {name: np.zeros((*lead, *(part.shape or ())), dtype=part.dtype) for name, part in leaves.items()}
