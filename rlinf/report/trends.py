"""The course of a noisy column of numbers: fifths of it against each other, and how much of that is noise."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence


def fifth(values: Sequence[float]) -> int:
    """How many steps a mean is taken over, so that no single step decides."""
    return max(1, len(values) // 5)


def early(values: Sequence[float]) -> float:
    """Compute the mean of the first fifth."""
    count = fifth(values)
    return sum(values[:count]) / count


def late(values: Sequence[float]) -> float:
    """Compute the mean of the last fifth.

    >>> late([0.0, 0.0, 0.0, 0.0, 1.0])
    1.0
    """
    count = fifth(values)
    return sum(values[-count:]) / count


def peak(values: Sequence[float]) -> float:
    """Compute the largest mean of any fifth.

    >>> peak([0.0, 1.0, 5.0, 1.0, 0.0])
    5.0
    """
    count = fifth(values)
    sums = list(itertools.accumulate(values, initial=0.0))
    return max(after - before for before, after in zip(sums, sums[count:], strict=False)) / count


def noise(values: Sequence[float]) -> float:
    """Estimate the standard error of the mean of a fifth, from differences of neighbouring steps (without the
    trend)."""
    if len(values) < 3:
        return math.inf
    jumps = [(after - before) ** 2 for before, after in itertools.pairwise(values)]
    return math.sqrt(sum(jumps) / len(jumps) / 2 / fifth(values))


def risen(values: Sequence[float]) -> int:
    """Return 1 or -1 if late differs from early by more than twice the noise of the difference, else 0."""
    change = late(values) - early(values)
    if len(values) < 5 or abs(change) <= 2 * math.sqrt(2) * noise(values):
        return 0
    return 1 if change > 0 else -1


def lost(values: Sequence[float]) -> float:
    """Return the share of the gain at the peak that is gone at the end; 0 if gain or loss may be noise.

    The peak is the luckiest of many fifths, so it must stand out by three times the noise of a difference, not
    two.
    """
    first, best, last = early(values), peak(values), late(values)
    beyond = 3 * math.sqrt(2) * noise(values)
    if len(values) < 10 or best - first <= beyond or best - last <= beyond:
        return 0.0
    return (best - last) / (best - first)
