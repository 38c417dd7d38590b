"""Sequential stopping (`stop: sequential`): seeds are run in rounds, until the best setting is decided, or can't be.

All pairs of settings are compared after each round by Welch's test. The error probability is divided among rounds by
:func:`rlinf.sweep.power.spent`, and among pairs equally (Bonferroni). So whatever is chosen after an analysis of the
results, some pair of equal settings is called different with a probability of at most 5%.

Giving up (futility) is a projection by conditional power (Lan, Simon and Halperin 1982, Sequential Analysis 1):
even if the remaining seeds had the largest difference that the results leave possible, the last analysis would hardly
find it. Stopping for that never calls anything different.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal

import numpy as np

from rlinf.base.student import student_quantile
from rlinf.sweep.power import critical_value, seeds_needed, spent
from rlinf.sweep.statistics import welch

ALPHA = 0.05
FIRST = 2
"""Seeds of the first round: with fewer there is no variance."""
HOPELESS = 0.2
"""A chance below this, at the largest difference that is possible, is not worth the remaining seeds."""


@dataclass(frozen=True)
class Judgement:
    """The state of a comparison after some rounds."""

    state: Literal["decided", "hopeless", "open", "unknown"]
    seeds: int
    """That every setting has finished."""
    needed: int | None = None
    """Seeds a setting with which the closest pair would be decided in four of five cases; None: too many to count."""

    def sentence(self, planned: int) -> str:
        """Put it in words; ``planned``: seeds of the whole sweep."""
        done = f"after {self.seeds} of {planned} seeds a setting"
        requested = "more than 1,000 seeds" if self.needed is None else f"about {self.needed} seeds"
        if self.state == "decided":
            return f"Decided {done}: the best differs from every other (error rate below {ALPHA:g} over all analyses)."
        if self.state == "hopeless":
            return (
                f"Stopped {done}: the difference cannot become significant within the budget of {planned} seeds; "
                f"as it is now, that would take {requested} a setting."
            )
        if self.state == "open":
            more = "" if self.needed is None else f" ({max(1, self.needed - self.seeds)} more)"
            return f"Not decided {done}: as it is now, it needs {requested} a setting{more}."
        return f"Not judged yet: a comparison needs {FIRST} seeds of every setting."


def judge(scores: Sequence[Mapping[int, float]], seeds: Sequence[int], *, sign: int = 1) -> Judgement:
    """Judge settings by their scores by seed; ``seeds``: all of the sweep, in their order; ``sign`` -1: less is better.

    The seeds count that every setting has finished, from the first on.
    """
    done = list(itertools.takewhile(lambda seed: all(seed in one for one in scores), seeds))
    if len(done) < FIRST or len(scores) < 2:
        return Judgement("unknown", len(done))
    rows = [[sign * one[seed] for seed in done] for one in scores]
    pairs = math.comb(len(rows), 2)
    best = max(range(len(rows)), key=lambda index: float(np.mean(rows[index])))
    left = [
        one
        for index, one in enumerate(rows)
        if index != best and not separated(rows[best], one, planned=len(seeds), pairs=pairs)
    ]
    if not left:
        return Judgement("decided", len(done))
    alpha = (ALPHA - spent(ALPHA, (len(seeds) - 1) / len(seeds))) / pairs
    results = [_projected(rows[best], one, planned=len(seeds), alpha=alpha) for one in left]
    needed = [count for count, _ in results]
    most = None if None in needed else max(count for count in needed if count is not None)
    hopeless = len(done) < len(seeds) and all(chance < HOPELESS for _, chance in results)
    return Judgement("hopeless" if hopeless else "open", len(done), most)


def separated(best: Sequence[float], other: Sequence[float], *, planned: int, pairs: int) -> bool:
    """Return whether an analysis so far found ``best`` better than ``other`` at its share of the error rate."""
    before = 0.0
    for count in range(FIRST, len(best) + 1):
        until = spent(ALPHA, count / planned)
        p_value = welch(best[:count], other[:count])
        better = float(np.mean(best[:count])) > float(np.mean(other[:count]))
        if better and p_value is not None and p_value <= (until - before) / pairs:
            return True
        before = until
    return False


def _projected(
    best: Sequence[float], other: Sequence[float], *, planned: int, alpha: float
) -> tuple[int | None, float]:
    """(seeds that the difference found now would need, the chance of the largest one possible at the last seed)."""
    deviations = float(np.std(best, ddof=1)), float(np.std(other, ddof=1))
    difference = float(np.mean(best) - np.mean(other))
    error = math.hypot(*deviations) / math.sqrt(len(best))
    if error == 0 or len(best) == planned:
        return seeds_needed(difference, deviations, alpha), float(difference != 0)
    largest = difference / error + student_quantile(2.0 * len(best) - 2)
    share = len(best) / planned
    edge = critical_value(alpha, 2.0 * planned - 2)
    # Z at the end, given that now: what is there counts sqrt(share), the rest has the drift of the largest difference.
    expected = difference / error * math.sqrt(share) + largest / math.sqrt(share) * (1 - share)
    chance = NormalDist().cdf((expected - edge) / math.sqrt(1 - share))
    return seeds_needed(difference, deviations, alpha), chance
