"""Two evaluations of the same tasks (simulators: start states) against each other, task by task."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rlinf.base.errors import UserError
from rlinf.base.random_streams import numpy_generator
from rlinf.train.evaluation.intervals import least_share, mean_interval
from rlinf.train.evaluation.outcomes import Outcome, paired_rates

_DRAWS = 10_000
_AT_ONCE = 1 << 22
_UNBOUNDED = "return"
"""The metric that is no share: differences of the others lie in [-1, 1]."""


@dataclass(frozen=True)
class PairedDifference:
    """A rate of the second evaluation minus that of the first, over the tasks that both have."""

    metric: str
    first: float
    second: float
    low: float
    high: float
    """95% interval of the difference: Student's, of the tasks' differences; if all are equal, the exact one of a
    share (Clopper and Pearson 1934, Biometrika 26)."""
    p_value: float
    """Two-sided, of no difference: signs of the tasks' differences flipped at random 10,000 times (for one response a
    task this is McNemar's test)."""
    tasks: int

    @property
    def difference(self) -> float:
        return self.second - self.first


def compare(first: Sequence[Outcome], second: Sequence[Outcome]) -> list[PairedDifference]:
    """Compare every rate that both have, `avg@k` as `accuracy`, which it is.

    Raises UserError if they have no task in common.

    >>> from rlinf.train.evaluation.outcomes import TaskOutcome
    >>> right, wrong = (TaskOutcome("a", ("correct",), ("1",)), TaskOutcome("a", ("wrong",), ("2",)))
    >>> compare([wrong], [right])[0].difference
    1.0
    """
    before, after = ({outcome.task: outcome for outcome in outcomes} for outcomes in (first, second))
    common = sorted(before.keys() & after.keys())
    if not common:
        raise UserError(
            "the two evaluations have no task in common (a task is its prompt and its answer; a simulator's is its "
            "environment with its arguments and the start state): evaluate both with the same --data or --suite and "
            "prompt, or with the same env.kwargs and evaluation.seed"
        )
    left, right = (paired_rates([one[task] for task in common]) for one in (before, after))
    # The same numbers as the accuracy, whose random draws, and so whose p-value, would be others under another name.
    names = [name for name in left if name in right and not name.startswith("avg@")]
    return [_difference(name, left[name], right[name]) for name in names]


def _difference(metric: str, first: Sequence[float], second: Sequence[float]) -> PairedDifference:
    gains = np.asarray(second) - np.asarray(first)
    count, observed = len(gains), float(gains.mean())
    generator = numpy_generator(0, "paired", metric)
    flipped = np.empty(_DRAWS)
    size = max(1, _AT_ONCE // count)
    for start in range(0, _DRAWS, size):
        draws = min(size, _DRAWS - start)
        signs = generator.integers(2, size=(draws, count)) * 2 - 1
        flipped[start : start + draws] = (signs * gains).mean(axis=1)
    # A draw that equals the observed difference but for rounding counts as extreme.
    extreme = int((np.abs(flipped) >= abs(observed) - 1e-12).sum())
    low, high = mean_interval(gains.tolist()) if count > 1 else (-math.inf, math.inf)
    if metric != _UNBOUNDED:
        if gains.min() == gains.max():
            # No variance: a share of all tasks that none of these are in may have any difference.
            unseen = 1.0 - least_share(count)
            low, high = observed - unseen * (1.0 + observed), observed + unseen * (1.0 - observed)
        low, high = max(-1.0, low), min(1.0, high)
    return PairedDifference(
        metric, float(np.mean(first)), float(np.mean(second)), low, high, (1 + extreme) / (1 + _DRAWS), count
    )
