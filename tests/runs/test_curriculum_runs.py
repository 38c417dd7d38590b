"""Runs that begin with easy tasks: what is drawn, what is logged, and the same after a stop."""

import json
from pathlib import Path
from typing import Any

import pytest
from tiny_runs import TASK, config, logged, run

from rlinf.base.errors import UserError
from rlinf.config.problems import ConfigErrors

SUMS: dict[str, Any] = {
    "kwargs": {
        **TASK,
        "params": {"min_terms": 2, "max_terms": 5, "min_digits": 1, "max_digits": 1},
        "reward": {"correctness": 1.0, "format": {"weight": 0.5, "pattern": "[A-Za-z]"}},
    }
}


def sections(max_steps: int, **curriculum: Any) -> dict[str, Any]:
    return {
        "run": {"max_steps": max_steps},
        "env": SUMS,
        "data": {"curriculum": {"by": "num_terms", "start": 0.1, "warm_start": 1.0, **curriculum}},
        "evaluation": {"size": 0, "env_kwargs": None},
    }


def test_a_run_begins_with_easy_tasks_and_goes_on_where_it_stopped(tmp_path: Path) -> None:
    run(config(tmp_path / "straight", **sections(3, steps=2)))
    run(config(tmp_path / "stopped", **sections(1, steps=2)))
    run(config(tmp_path / "stopped", **sections(3, steps=2)))
    straight, stopped = (json.loads((tmp_path / name / "summary.json").read_text()) for name in ("straight", "stopped"))
    assert straight["params_sha256"] == stopped["params_sha256"]
    shares = [line["curriculum/share"] for line in logged(tmp_path / "straight") if "curriculum/share" in line]
    assert shares == [0.1, pytest.approx(0.711, abs=1e-3), 1.0]


def test_a_measure_that_the_tasks_do_not_have_is_refused_before_training(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="did you mean 'num_terms'"):
        run(config(tmp_path, **sections(2, steps=2, by="num_term")))


@pytest.mark.parametrize(
    ("curriculum", "words"),
    [
        ({}, "nothing sets when harder tasks come"),
        ({"steps": 2, "accuracy": 0.5}, "both set when harder tasks come"),
        ({"steps": 2, "start": 0.0}, "above 0"),
    ],
)
def test_a_curriculum_that_cannot_go_on_is_refused(tmp_path: Path, curriculum: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigErrors, match=words):
        config(tmp_path, **sections(4, **curriculum))
