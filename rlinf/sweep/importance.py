"""Which parameters matter: the share of the result's variance that a parameter explains alone.

The share is the correlation ratio: the variance of the means of the parameter's values (or of eight ranges of equal
count, where it is a number with many values) over the whole variance. Any grouping explains something by chance, so the
result is permuted against the parameter 200 times; the mean of that is taken off, and its 95th percentile is the noise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

_BINS, _PERMUTATIONS = 8, 200


@dataclass(frozen=True)
class Importance:
    """``share`` of the variance (chance taken off), the ``raw`` one, and what chance reaches in 5% of cases."""

    key: str
    share: float
    raw: float
    noise: float

    @property
    def matters(self) -> bool:
        return self.raw > self.noise


def importances(
    keys: Sequence[str], settings: Sequence[Mapping[str, Any]], results: Sequence[float]
) -> list[Importance]:
    """The importance of every key that varies, the most important first; none for fewer than four results."""
    found: list[Importance] = []
    values = np.asarray(results, dtype=np.float64)
    if len(values) < 4 or values.var() == 0:
        return found
    generator = np.random.default_rng(0)
    shuffled = np.stack([generator.permutation(values) for _ in range(_PERMUTATIONS)])
    for key in keys:
        groups = _groups([setting.get(key) for setting in settings])
        if groups.max(initial=0) == 0:
            continue
        raw = float(_explained(groups, values[None])[0])
        chance = _explained(groups, shuffled)
        mean = float(chance.mean())
        share = max(0.0, (raw - mean) / (1 - mean)) if mean < 1 else 0.0
        found.append(Importance(key, share, raw, float(np.percentile(chance, 95))))
    return sorted(found, key=lambda one: -one.share)


def _groups(values: Sequence[Any]) -> NDArray[np.int64]:
    """A group number for each value."""
    distinct = sorted({repr(value) for value in values})
    numeric = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    if numeric and len(distinct) > _BINS:
        column = np.asarray(values, dtype=np.float64)
        edges = np.quantile(column, np.linspace(0, 1, _BINS + 1)[1:-1])
        return np.searchsorted(edges, column, side="right")
    places = {mark: place for place, mark in enumerate(distinct)}
    return np.asarray([places[repr(value)] for value in values], dtype=np.int64)


def _explained(groups: NDArray[np.int64], results: NDArray[np.float64]) -> NDArray[np.float64]:
    """The correlation ratio of each row of results [R, N]."""
    member = np.eye(int(groups.max()) + 1)[groups]
    counts = member.sum(axis=0)
    used = counts > 0
    means = (results @ member)[:, used] / counts[used]
    centre = results.mean(axis=1, keepdims=True)
    between = ((means - centre) ** 2 * counts[used]).sum(axis=1)
    ratio: NDArray[np.float64] = between / ((results - centre) ** 2).sum(axis=1)
    return ratio
