"""Statistics files of Stable-Baselines3's VecNormalize (`vecnormalize.pkl`), read without it.

The file is a pickle. Of what it names only numpy's arrays are made; every other object is an empty one that holds its
attributes, so that reading runs no code of the file.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rlinf.base.errors import UserError
from rlinf.data.spaces import ROOT

_ARRAYS = ("_reconstruct", "ndarray", "dtype", "scalar", "_frombuffer")


class StatisticsError(UserError):
    """A file that holds no statistics of VecNormalize, or those of other observations."""


@dataclass(frozen=True)
class Moments:
    """Statistics of numbers of one shape."""

    mean: np.ndarray
    """float64."""
    variance: np.ndarray
    count: float


@dataclass(frozen=True)
class NormalizationStatistics:
    observations: Mapping[str, Moments]
    """By leaf (:mod:`rlinf.data.spaces`); empty where they were not normalised."""
    returns: Moments | None
    """Of the discounted return, by whose deviation rewards were divided."""


def read_statistics(path: str | Path) -> NormalizationStatistics:
    """Read a file that ``VecNormalize.save`` wrote. Raises StatisticsError if it is none."""
    try:
        with Path(path).expanduser().open("rb") as file:
            result = vars(_Reader(file).load())
        seen, returned = result.get("obs_rms"), result["ret_rms"]
        leaves = {f"{ROOT}.{name}": part for name, part in seen.items()} if isinstance(seen, dict) else {ROOT: seen}
        observations = {name: _moments(part) for name, part in leaves.items() if part is not None}
        return NormalizationStatistics(observations, None if returned is None else _moments(returned))
    except (OSError, EOFError, pickle.UnpicklingError, AttributeError, TypeError, ValueError, KeyError) as error:
        raise StatisticsError(
            f"{path} is no file of Stable-Baselines3's VecNormalize ({type(error).__name__}: {error}): name "
            "the one that VecNormalize.save wrote, vecnormalize.pkl in the Zoo"
        ) from error


def _moments(statistics: Any) -> Moments:
    mean, variance = (np.asarray(vars(statistics)[name], dtype=np.float64) for name in ("mean", "var"))
    return Moments(mean, variance, float(vars(statistics)["count"]))


class _Held:
    """An object of the file: its attributes, and no behaviour."""

    def __init__(self, *arguments: object, **named: object) -> None:
        """Take what the file calls the class with."""

    def __setstate__(self, state: object) -> None:
        if isinstance(state, dict):
            vars(self).update(state)

    def __setitem__(self, name: object, value: object) -> None:
        """Leave out the entries of mappings that are no plain dict."""


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if module.partition(".")[0] == "numpy" and name in _ARRAYS:
            return super().find_class(module, name)
        return _Held
