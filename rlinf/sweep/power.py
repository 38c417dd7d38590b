"""How many seeds a comparison needs, and how much of the error probability each interim analysis may use.

The power of Welch's test is that of the noncentral t distribution (Cohen, "Statistical Power Analysis for the
Behavioral Sciences", 1988, chapter 2), with Welch's degrees of freedom. Interim analyses spend the error
probability by the O'Brien-Fleming-like function of Lan and DeMets (1983, Biometrika 70, 659-663).
"""

from __future__ import annotations

import functools
import math
from statistics import NormalDist

import numpy as np

from rlinf.sweep.statistics import least_p_value

POWER = 0.8
"""The chance of finding a difference of the assumed size that a projection requires."""
MOST = 1000
"""More seeds than this are not counted."""
_NORMAL = NormalDist()
_POINTS = 2001


@functools.lru_cache(maxsize=512)
def critical_value(alpha: float, freedom: float) -> float:
    """Compute the t with P(|T| > t) = ``alpha`` of Student's distribution.

    >>> round(critical_value(0.05, 4.0), 3)
    2.776
    """
    # As in student_tail: with T = sqrt(freedom) tan(angle) the density is cos(angle)^(freedom - 1).
    angles = math.pi / 2 * (1 - np.linspace(0.0, 1.0, 20001) ** 3)  # close together in the tail
    density = np.cos(angles) ** (freedom - 1)
    tails = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) / 2 * -np.diff(angles))])
    return math.sqrt(freedom) * math.tan(float(np.interp(alpha, tails / tails[-1], angles)))


def power(difference: float, deviations: tuple[float, float], seeds: int, alpha: float) -> float:
    """Compute the chance that Welch's two-sided test at ``alpha`` finds a ``difference`` of two means.

    Each is the mean of ``seeds`` values (2 or more); ``deviations`` are their standard deviations.

    >>> round(power(1.0, (1.0, 1.0), 17, 0.05), 2), round(power(0.0, (1.0, 1.0), 5, 0.05), 3)
    (0.81, 0.05)
    """
    a, b = (deviation**2 / seeds for deviation in deviations)
    if a + b == 0:
        return float(difference != 0 and least_p_value(seeds, seeds) <= alpha)
    freedom = (a + b) ** 2 * (seeds - 1) / (a**2 + b**2)
    shift, edge = abs(difference) / math.sqrt(a + b), critical_value(alpha, freedom)
    # T = (Z + shift) / w, where freedom w^2 has a chi-square distribution.
    width = 10 / math.sqrt(2 * freedom)
    w = np.linspace(max(1e-9, 1 - width), 1 + width, _POINTS)
    logs = (freedom - 1) * np.log(w) - freedom * w**2 / 2
    density = np.exp(logs - logs.max())
    above = np.array([_NORMAL.cdf(shift - edge * one) + _NORMAL.cdf(-shift - edge * one) for one in w])
    return float(np.trapezoid(above * density, w) / np.trapezoid(density, w))


def seeds_needed(difference: float, deviations: tuple[float, float], alpha: float) -> int | None:
    """Compute the seeds with which the test finds ``difference`` with a chance of :data:`POWER`.

    None: more than :data:`MOST`.

    >>> seeds_needed(1.0, (1.0, 1.0), 0.05), seeds_needed(0.0, (1.0, 1.0), 0.05)
    (17, None)
    """
    if power(difference, deviations, MOST, alpha) < POWER:
        return None
    low, high = 1, MOST
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if power(difference, deviations, middle, alpha) >= POWER else (middle, high)
    return high


@functools.cache
def spent(alpha: float, share: float) -> float:
    """Compute the error probability that analyses of up to ``share`` of all seeds may have used together.

    alpha(s) = 2 - 2 Phi(z / sqrt(s)), where z is the normal quantile of 1 - alpha / 2 (Lan and DeMets 1983).

    >>> [round(spent(0.05, share), 4) for share in (0.25, 0.5, 1.0)]
    [0.0001, 0.0056, 0.05]
    """
    return 2 - 2 * _NORMAL.cdf(_NORMAL.inv_cdf(1 - alpha / 2) / math.sqrt(share))
