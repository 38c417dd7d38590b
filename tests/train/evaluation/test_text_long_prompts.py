"""Prompts of an evaluation that leave their responses no room are counted aloud."""

from __future__ import annotations

from pathlib import Path

import pytest
from tiny_runs import TASK, config, run

from rlinf.train.run import evaluate_run


def test_prompts_that_leave_no_room_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    long = {**TASK["params"], "min_terms": 40, "max_terms": 40}
    sections = {"sft": {"steps": 0}, "run": {"max_steps": 1}, "logging": {"progress": "plain"}}
    run(config(tmp_path / "short", **sections))
    assert "max_prompt_length" not in capsys.readouterr().out
    run(config(tmp_path / "long", **sections, evaluation={"env_kwargs": {"split": "eval", "params": long}}))
    found = "8 of 8 prompts are longer than data.max_prompt_length 64"
    assert f"step 0: evaluation: {found}" in capsys.readouterr().out
    evaluate_run(str(tmp_path / "long"))
    assert found in capsys.readouterr().out
