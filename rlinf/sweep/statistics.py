"""Point estimates and intervals over seeds.

Interquartile mean and stratified bootstrap as Agarwal et al. define them ("Deep Reinforcement Learning at the Edge of
the Statistical Precipice", NeurIPS 2021, arXiv:2108.13264, section 4): scores are a matrix [seeds, tasks]; the
interquartile mean is the mean of the middle half of all its entries; a bootstrap sample draws the seeds of each task
with replacement, independently of the other tasks; the interval is made of the 2.5 and 97.5 percentiles. Of three or
five seeds it is too narrow, so the interval of a mean is Student's.
The probability of improvement (the same paper, appendix A.2) is that of a run of one setting being better than a run of
the other, over all pairs of runs, equal ones counting half.
Two settings are compared by Welch's unequal-variances test (Welch 1947, Biometrika 34); several comparisons are
corrected by Holm's procedure (Holm 1979).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rlinf.base.student import student_quantile, student_tail
from rlinf.train.evaluation.intervals import least_share, mean_interval

Scores = NDArray[np.float64]
RESAMPLES = 2000


@dataclass(frozen=True)
class Estimate:
    """Point estimates over seeds, and 95% intervals (low, high): Student's of the mean, bootstrap of the interquartile
    mean."""

    count: int
    mean: float
    median: float
    iqm: float
    mean_interval: tuple[float, float]
    iqm_interval: tuple[float, float]


def estimate(values: Sequence[float]) -> Estimate | None:
    """Estimate one task's scores; None if there are none."""
    if not values:
        return None
    scores = np.asarray(values, dtype=np.float64)[:, None]
    samples = resampled(scores, count=RESAMPLES, seed=0)
    return Estimate(
        count=len(values),
        mean=float(scores.mean()),
        median=float(np.median(scores)),
        iqm=float(iqm(scores)),
        mean_interval=mean_interval(values),
        iqm_interval=percentiles(iqm(samples)),
    )


def iqm(scores: Scores) -> NDArray[np.float64]:
    """Compute the interquartile mean over the last two axes: a quarter of the entries (rounded down) cut per end.

    >>> float(iqm(np.array([[0.0], [1.0], [2.0], [30.0]])))
    1.5
    """
    flat = np.sort(scores.reshape(*scores.shape[:-2], -1), axis=-1)
    cut = flat.shape[-1] // 4
    middle: NDArray[np.float64] = flat[..., cut : flat.shape[-1] - cut].mean(axis=-1)
    return middle


def resampled(scores: Scores, *, count: int, seed: int) -> Scores:
    """``count`` stratified bootstrap samples [count, seeds, tasks] of scores [seeds, tasks]."""
    generator = np.random.default_rng(seed)
    seeds, tasks = scores.shape
    rows = generator.integers(seeds, size=(count, seeds, tasks))
    return scores[rows, np.arange(tasks)]


def percentiles(values: NDArray[np.float64]) -> tuple[float, float]:
    low, high = np.percentile(values, [2.5, 97.5])
    return float(low), float(high)


def mean_band(curves: Scores) -> tuple[Scores, Scores, Scores]:
    """Mean and 95% interval (Student's) at every point of curves [seeds, points]; one seed is its own interval."""
    mean = curves.mean(axis=0)
    if len(curves) < 2:
        return mean, mean, mean
    spread = student_quantile(len(curves) - 1.0) * curves.std(axis=0, ddof=1) / math.sqrt(len(curves))
    return mean, mean - spread, mean + spread


@dataclass(frozen=True)
class ImprovementChance:
    """The chance that a run of one setting beats one of another: probability, 95% bootstrap interval, seed by seed."""

    probability: float
    interval: tuple[float, float]
    wins: int
    """The number of the ``shared`` seeds on which the first setting was better."""
    shared: int


def improvement(a: Mapping[int, float], b: Mapping[int, float]) -> ImprovementChance | None:
    """Compute the improvement of ``a`` over ``b``, scores by seed, higher is better; None if one is empty.

    If both have the same seeds, these are resampled together: what they have in common stays so. If one was
    better in every pair, or all are equal, resampling finds nothing else. The interval is then the exact one of as
    many independent pairs as there are (Clopper and Pearson 1934, Biometrika 26).
    """
    if not a or not b:
        return None
    order_a, order_b = sorted(a), sorted(b)
    x, y = np.asarray([a[key] for key in order_a]), np.asarray([b[key] for key in order_b])
    better = np.sign(x[:, None] - y[None, :]) / 2 + 0.5
    generator = np.random.default_rng(0)
    rows = generator.integers(len(x), size=(RESAMPLES, len(x)))
    columns = rows if order_a == order_b else generator.integers(len(y), size=(RESAMPLES, len(y)))
    low, high = percentiles(better[rows[:, :, None], columns[:, None, :]].mean(axis=(1, 2)))
    if (better == better[0, 0]).all():
        edge = least_share(min(len(x), len(y)))
        low, high = edge * low, 1 - edge * (1 - high)
    common = a.keys() & b.keys()
    wins = sum(a[key] > b[key] for key in common)
    return ImprovementChance(float(better.mean()), (low, high), wins, len(common))


def least_p_value(first: int, second: int) -> float:
    """Compute the two-sided p-value that an exact permutation test of two samples of these sizes cannot go below."""
    return 2 / math.comb(first + second, first)


def welch(a: Sequence[float], b: Sequence[float]) -> float | None:
    """Compute the two-sided p-value that two samples have one mean; None below two values each.

    Without any variance it is that of the exact permutation test, which no sample of this size goes below.

    >>> round(welch([1.0, 2.0, 3.0], [2.0, 4.0, 9.0]), 4), welch([1.0, 1.0, 1.0], [0.9, 0.9, 0.9])
    (0.2838, 0.1)
    """
    if len(a) < 2 or len(b) < 2:
        return None
    x, y = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    vx, vy = x.var(ddof=1) / len(x), y.var(ddof=1) / len(y)
    if vx + vy == 0:
        return 1.0 if x.mean() == y.mean() else least_p_value(len(x), len(y))
    freedom = (vx + vy) ** 2 / (vx**2 / (len(x) - 1) + vy**2 / (len(y) - 1))
    return student_tail(abs(float(x.mean() - y.mean())) / math.sqrt(vx + vy), float(freedom))


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's correction for several comparisons.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    order = sorted(range(len(p_values)), key=lambda index: p_values[index])
    corrected, running = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(order):
        running = max(running, min(1.0, p_values[index] * (len(p_values) - rank)))
        corrected[index] = running
    return corrected
