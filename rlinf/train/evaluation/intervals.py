"""Intervals for what an evaluation reports."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rlinf.base.student import student_quantile
from rlinf.data.messages import Metrics

_Z = 1.959963984540054


def wilson(successes: float, count: float) -> tuple[float, float]:
    """Compute the 95% score interval of a proportion (Wilson 1927).

    >>> [round(edge, 3) for edge in wilson(8, 10)]
    [0.49, 0.943]
    >>> wilson(0, 300)[0], wilson(300, 300)[1]
    (0.0, 1.0)
    """
    if count == 0:
        return 0.0, 1.0
    share = successes / count
    centre = (share + _Z**2 / (2 * count)) / (1 + _Z**2 / count)
    spread = _Z / (1 + _Z**2 / count) * math.sqrt(share * (1 - share) / count + _Z**2 / (4 * count**2))
    # At the edges the difference is 0 but for rounding.
    low = centre - spread if successes > 0 else 0.0
    return max(0.0, low), min(1.0, centre + spread if successes < count else 1.0)


def least_share(count: int) -> float:
    """Compute the lower edge of the exact 95% interval of a share that is 1 in a sample (Clopper and Pearson 1934).

    >>> round(least_share(10), 3)
    0.692
    """
    return float(0.025 ** (1 / count))


def mean_interval(values: Sequence[float]) -> tuple[float, float]:
    """Compute the 95% interval of a mean, by Student's t; one value alone is both edges.

    >>> mean_interval([1.0, 1.0])
    (1.0, 1.0)
    >>> [round(edge, 2) for edge in mean_interval([0.0, 1.0])]
    [-5.85, 6.85]
    """
    count = len(values)
    if count < 2:
        return (values[0], values[0]) if values else (math.nan, math.nan)
    mean = sum(values) / count
    spread = student_quantile(count - 1.0) * math.sqrt(
        sum((value - mean) ** 2 for value in values) / (count - 1) / count
    )
    return mean - spread, mean + spread


def share_interval(shares: Sequence[float], samples: int) -> tuple[float, float]:
    """Compute the 95% interval of the mean of tasks' shares in [0, 1], each of ``samples`` responses.

    Wilson's, for as many independent responses as have the variance of that mean (the design effect of Kish
    1965): at least one a task, and all of them at most. Tasks that agree, all solved or none, still leave it a
    width.

    >>> [round(edge, 3) for edge in share_interval([1.0, 0.0], 1)] == [round(edge, 3) for edge in wilson(1, 2)]
    True
    >>> [round(edge, 3) for edge in share_interval([0.0, 0.0], 4)]
    [0.0, 0.658]
    """
    count, mean = len(shares), sum(shares) / len(shares)
    variance = sum((share - mean) ** 2 for share in shares) / count
    effective = count * mean * (1 - mean) / variance if variance else count
    effective = min(max(effective, count), count * samples)
    return wilson(mean * effective, effective)


Measured = tuple[float, float, float]
"""A mean or a share, with the lower and the upper end of its 95% interval."""


def beyond_noise(before: Measured, after: Measured) -> int:
    """Return 1 if ``after`` is above ``before`` by more than the noise of both, -1 if it is below, else 0.

    The interval of the difference follows from those of its terms (Newcombe 1998, Statistics in Medicine 17, method
    10): intervals may overlap. Tasks that both have in common make it narrower still.

    >>> beyond_noise((0.5, 0.44, 0.56), (0.6, 0.54, 0.66)), beyond_noise((0.5, 0.44, 0.56), (0.55, 0.49, 0.61))
    (1, 0)
    """
    change = after[0] - before[0]
    if change > math.hypot(after[0] - after[1], before[2] - before[0]):
        return 1
    return -int(-change > math.hypot(after[2] - after[0], before[0] - before[1]))


def with_interval(name: str, value: float, interval: tuple[float, float], count: int) -> Metrics:
    """Return a metric, the edges of its interval and its sample size."""
    return {name: value, f"{name}/ci_low": interval[0], f"{name}/ci_high": interval[1], f"{name}/n": float(count)}


def pass_at_k(samples: int, correct: int, k: int) -> float:
    """Compute the unbiased estimate that one of k samples is correct (Chen et al. 2021, arXiv:2107.03374).

    >>> pass_at_k(4, 1, 2)
    0.5
    """
    if samples - correct < k:
        return 1.0
    return 1.0 - math.prod((samples - correct - i) / (samples - i) for i in range(k))
