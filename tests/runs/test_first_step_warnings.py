"""A run that cannot learn is reported on the terminal and in its report."""

from __future__ import annotations

from pathlib import Path

import pytest
from tiny_runs import TASK, config

from rlinf.report.health import examine
from rlinf.report.runs import read_run
from rlinf.train import run


def worthless(*, prompt: str, response: str, answer: str, row: dict[str, object]) -> float:
    """A reward whose author divided by zero."""
    return float("nan")


def test_a_reward_that_is_always_nan_is_reported_in_all_modes_and_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "1000")
    made = config(
        tmp_path,
        run={"max_steps": 4},
        env={"kwargs": {**TASK, "reward": {"custom": {f"{__name__}:worthless": 1.0}}}},
        sft={"steps": 0},
        logging={"progress": "plain", "samples_every": 0},
        checkpoint={"every": 0, "export": False},
    )
    found = run(made, report=False).findings
    printed = capsys.readouterr().out
    title = "WARNING: Every reward was NaN or infinite in the first 3 training iterations."
    assert printed.count(title) == 1
    assert "worthless" in printed
    assert printed.index("step 2/4") < printed.index(title) < printed.index("step 4/4")
    assert "\nBAD  Every reward was NaN or infinite in the first 3 training iterations: Rewards that are" in printed
    worst = examine(read_run(tmp_path))[0]
    assert found[0] == worst
    assert (worst.level, worst.title) == ("bad", "Every reward was NaN or infinite in the first 3 training iterations")
