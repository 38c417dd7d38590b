"""Learning rates of a stage: the warm-up counts optimiser steps, also where a run goes on with other minibatches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rlinf.learners.stage import Stage
from rlinf.schema import OptimizerConfig


def stage(minibatches: int, warmup: int, schedule: Any = "constant", steps: int = 50) -> Stage:
    optimizer = OptimizerConfig(warmup_steps=warmup, schedule=schedule, min_lr_ratio=0.1)
    return Stage("train", None, optimizer, steps=steps, minibatches=minibatches)  # type: ignore[arg-type]


def test_a_warm_up_counts_optimiser_steps() -> None:
    """Four minibatches and a warm-up of 6: over in the second iteration."""
    factors = [stage(4, 6).lr_factor(done) for done in range(8)]
    assert factors == pytest.approx([1 / 6, 2 / 6, 3 / 6, 4 / 6, 5 / 6, 1, 1, 1])


@pytest.mark.parametrize("schedule", ["constant", "linear", "cosine"])
@pytest.mark.parametrize("now", [1, 2, 8, 32])
@pytest.mark.parametrize("done", [8, 24, 80, 200, 392])
def test_the_rate_goes_on_where_it_was_with_other_minibatches(schedule: str, now: int, done: int) -> None:
    before, after = stage(8, 20, schedule), stage(now, 20, schedule)
    resumed = after.resumed(before.saved(done), Path("step"))
    # Whole steps: the rate differs by less than that of one step.
    one_step = 1.6 / (min(before.optimizer_steps, after.optimizer_steps) - 20)
    assert after.lr_factor(resumed) == pytest.approx(before.lr_factor(done), abs=one_step)
    if done < 20:
        assert resumed == done
    assert after.resumed(after.saved(done), Path("step")) == done
