"""Bins of discretised actions: the numbers that their tokens stand for.

A of them per action; tokens are counted from 0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
from gymnasium import spaces

from rlinf.data.spaces import SpaceError, category_sizes

ActionStatistics = Mapping[str, Sequence[float]]
"""`q01` and `q99` of each number of an action, and `mask`: 0 for those that are not normalised."""
VOCABULARY_BINS = 256


class Bins(Protocol):
    """From tokens to numbers and back."""

    sizes: np.ndarray
    """[A] tokens of each number."""

    def numbers(self, tokens: np.ndarray) -> np.ndarray:
        """Tokens [..., A] as numbers."""

    def tokens(self, numbers: np.ndarray) -> np.ndarray:
        """Return the nearest tokens of numbers [..., A]."""


class EvenBins:
    """``count`` values from the lower bound to the upper one, both included."""

    def __init__(self, space: spaces.Box, count: int) -> None:
        _require_finite(space)
        self._low = space.low.reshape(-1).astype(np.float64)
        self._step = (space.high.reshape(-1).astype(np.float64) - self._low) / (count - 1)
        self._last = count - 1
        self.sizes = np.full(len(self._low), count)

    def numbers(self, tokens: np.ndarray) -> np.ndarray:
        return self._low + tokens * self._step

    def tokens(self, numbers: np.ndarray) -> np.ndarray:
        # With equal bounds every token is the same number: the middle one is imitated.
        middle = np.full(np.shape(numbers), self._last / 2)
        steps = np.divide(numbers - self._low, self._step, out=middle, where=self._step != 0)
        return np.rint(np.clip(steps, 0, self._last)).astype(np.int64)


class Categories:
    """The values of discrete spaces."""

    def __init__(self, space: spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary) -> None:
        self.sizes, self._starts = category_sizes(space)

    def numbers(self, tokens: np.ndarray) -> np.ndarray:
        return tokens + self._starts

    def tokens(self, numbers: np.ndarray) -> np.ndarray:
        return np.rint(numbers - self._starts).astype(np.int64)


class VocabularyBins:
    """OpenVLA's bins (Kim et al., arXiv:2406.09246, section 3.2; `prismatic/vla/action_tokenizer.py`).

    256 edges lie evenly from -1 to 1, and a number between two of them is decoded as their middle: 255 values.
    With d the number of edges that a number reaches (1 to 256), its token is the vocabulary's id V - d. Here it
    is token d - 1, so that larger tokens are larger numbers. d = 256 is met by 1 alone, and is decoded as the
    last middle.

    An action's number x is mapped to [-1, 1] as 2 (x - q01) / (q99 - q01) - 1 by statistics of the data set, and
    back. Where their ``mask`` is 0 (a gripper's, for example) it is taken as it is. Without statistics the bounds
    of the space replace the quantiles.
    """

    def __init__(self, space: spaces.Box, statistics: ActionStatistics | None) -> None:
        """Raise SpaceError for infinite bounds without statistics, and for statistics of other actions."""
        self._low, self._high = (bound.reshape(-1).astype(np.float64) for bound in (space.low, space.high))
        count = len(self._low)
        if statistics is None:
            _require_finite(space)
            self._first, self._last, self._mask = self._low, self._high, np.ones(count, dtype=bool)
        else:
            self._first, self._last = (np.array(statistics[name], dtype=np.float64) for name in ("q01", "q99"))
            self._mask = np.array(statistics.get("mask", [1.0] * count)) > 0
            if not len(self._first) == len(self._last) == len(self._mask) == count:
                raise SpaceError(
                    f"policy.vla.action_statistics are of actions of {len(self._first)} numbers, not of {space}"
                )
        self.sizes = np.full(count, VOCABULARY_BINS)
        self._edges = np.linspace(-1.0, 1.0, VOCABULARY_BINS)
        self._middles = (self._edges[:-1] + self._edges[1:]) / 2.0

    def numbers(self, tokens: np.ndarray) -> np.ndarray:
        unit = self._middles[np.clip(tokens, 0, len(self._middles) - 1)]
        whole = np.where(self._mask, 0.5 * (unit + 1.0) * (self._last - self._first) + self._first, unit)
        return np.clip(whole, self._low, self._high)

    def tokens(self, numbers: np.ndarray) -> np.ndarray:
        width = self._last - self._first
        # An entry that never changes is 0, as in OpenVLA's loader.
        unit = np.where(width != 0, 2.0 * (numbers - self._first) / (width + 1e-8) - 1.0, 0.0)
        return np.digitize(np.clip(np.where(self._mask, unit, numbers), -1.0, 1.0), self._edges) - 1


def action_bins(space: spaces.Space, bins: int | None, statistics: ActionStatistics | None) -> Bins:
    """Return the bins of an action space; ``bins``: how many values a number has, None: as in
    :class:`VocabularyBins`."""
    if isinstance(space, spaces.Box):
        return VocabularyBins(space, statistics) if bins is None else EvenBins(space, bins)
    if bins is None:
        raise SpaceError(f"policy.vla.action_tokens: vocabulary needs continuous actions (a Box), got {space}")
    if isinstance(space, (spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)):
        return Categories(space)
    raise SpaceError(f"no action tokens for actions of type {type(space).__name__} ({space})")


def _require_finite(space: spaces.Box) -> None:
    if not all(math.isfinite(bound) for bound in (*space.low.reshape(-1), *space.high.reshape(-1))):
        raise SpaceError(f"discretised actions need finite bounds, got {space}; scale them with a wrapper")
