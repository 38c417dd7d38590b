"""Student's distribution, which intervals of few values and tests between few values are made of."""

from __future__ import annotations

import functools
import math

import numpy as np

_Z = 1.959963984540054
_MANY = 500.0
"""Degrees of freedom above which the expansion around the normal quantile is exact to seven digits."""
_HALVINGS = 50


def student_tail(t: float, freedom: float) -> float:
    """P(|T| > t) of Student's distribution: with T = sqrt(freedom) tan(angle) its density is cos(angle)^(freedom - 1).

    >>> round(student_tail(1.0, 1.0), 6), round(student_tail(2.776445, 4.0), 6)
    (0.5, 0.05)
    """

    def area(start: float) -> float:
        angles = np.linspace(start, math.pi / 2, 20001)
        return float(np.trapezoid(np.cos(angles) ** (freedom - 1), angles))

    return min(1.0, area(math.atan(t / math.sqrt(freedom))) / area(0.0))


@functools.lru_cache(maxsize=512)
def student_quantile(freedom: float) -> float:
    """Compute the t with P(|T| > t) = 5%: half the width of a 95% interval, in standard errors.

    >>> [round(student_quantile(freedom), 4) for freedom in (1.0, 2.0, 4.0, 30.0, 1e6)]
    [12.7062, 4.3027, 2.7764, 2.0423, 1.96]
    """
    if freedom > _MANY:
        # Cornish and Fisher's expansion; the integral above would be of a narrow peak.
        return _Z + (_Z**3 + _Z) / (4 * freedom) + (5 * _Z**5 + 16 * _Z**3 + 3 * _Z) / (96 * freedom**2)
    low, high = _Z, 13.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if student_tail(middle, freedom) > 0.05 else (low, middle)
    return (low + high) / 2
