"""What a callback may request of a run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from rlinf.config import Config
from rlinf.schema import LearnerConfig, OptimizerConfig
from rlinf.train.callbacks import Step


def test_a_learning_rate_is_set_in_proportion_to_that_of_the_configuration() -> None:
    def step(lr: float) -> Step:
        config = replace(Config(), learner=LearnerConfig(optimizer=OptimizerConfig(lr=lr)))
        return Step(1, config, Path("run"), {})

    halved = step(1e-3)
    halved.set_lr(5e-4)
    assert halved.lr_scale == 0.5
    with pytest.raises(ValueError, match="from 0 up"):
        halved.set_lr(-1.0)
    with pytest.raises(ValueError, match=r"learner\.optimizer\.lr is 0"):
        step(0.0).set_lr(1e-3)
