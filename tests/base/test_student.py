"""Intervals of means over few episodes contain the mean as often as they state."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import rlinf.report
from rlinf.base.student import student_quantile, student_tail
from rlinf.train.evaluation.intervals import mean_interval
from rlinf.train.evaluation.paired import compare
from rlinf.train.evaluation.start_outcomes import StartOutcome


def test_quantiles_are_those_of_scipy() -> None:
    from scipy import stats

    for freedom in (1.0, 2.0, 3.0, 7.5, 29.0, 200.0, 501.0, 1e5):
        assert student_quantile(freedom) == pytest.approx(stats.t.ppf(0.975, freedom), rel=1e-6)
        assert student_tail(1.3, min(freedom, 200.0)) == pytest.approx(
            2 * stats.t.sf(1.3, min(freedom, 200.0)), rel=1e-6
        )


@pytest.mark.parametrize("count", [2, 3, 5, 10, 30])
def test_the_interval_of_a_mean_covers_it_in_95_of_100_evaluations(count: int) -> None:
    """The normal interval would in 72, 81, 87, 92 and 95."""
    draws = np.random.default_rng(count).normal(3.0, 2.0, size=(4000, count))
    covered = [low <= 3.0 <= high for low, high in map(mean_interval, draws.tolist())]
    assert np.mean(covered) == pytest.approx(0.95, abs=0.012)


def test_one_value_is_its_own_interval_and_none_has_no_number() -> None:
    assert mean_interval([2.0]) == (2.0, 2.0)
    assert np.isnan(mean_interval([])).all()


@pytest.mark.parametrize("count", [2, 5])
def test_the_interval_of_a_paired_difference_covers_it(count: int) -> None:
    generator = np.random.default_rng(count)
    covered = []
    for _ in range(60):
        before, after = generator.normal(size=(2, count))
        first, second = (
            [StartOutcome(str(at), (float(value),)) for at, value in enumerate(values)] for values in (before, after)
        )
        (found,) = compare(first, second)
        assert (found.low, found.high) == pytest.approx(mean_interval((after - before).tolist()))
        covered.append(found.low <= 0.0 <= found.high)
    assert np.mean(covered) >= 0.87


def test_differences_of_shares_stay_between_their_bounds() -> None:
    first, second = (
        [StartOutcome(str(at), (0.0,), (flag,), (flag,)) for at, flag in enumerate(flags)]
        for flags in ((False, False), (True, False))
    )
    found = {one.metric: one for one in compare(first, second)}
    assert (found["success_once"].low, found["success_once"].high) == (-1.0, 1.0)


def test_the_reports_bands_use_the_same_distribution() -> None:
    script = (Path(rlinf.report.__file__).parent / "assets" / "curves.js").read_text(encoding="utf-8")
    listed = re.search(r"const STUDENT = \[([^\]]*)\]", script)
    assert listed is not None
    numbers = [float(text) for text in listed[1].split(",") if text.strip()]
    assert numbers == [pytest.approx(student_quantile(freedom + 1.0), abs=6e-4) for freedom in range(30)]
    for freedom in (31.0, 100.0):
        assert pytest.approx(student_quantile(freedom), abs=3e-3) == 1.96 + 2.4 / freedom
