"""Runs on a mixture of environments: shares, metrics of each, evaluation of its own, and an exact resumption."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tiny_runs

from rlinf.config import Config

TASKS: list[dict[str, Any]] = [
    {
        "name": "sums",
        "id": "rlinf_envs:rlinf/ReasoningGym-v0",
        "kwargs": tiny_runs.GRADED_BY_LENGTH,
        "evaluation_kwargs": {"split": "eval"},
        "weight": 2,
    },
    {"name": "guess", "id": "rlinf_envs:rlinf/GuessNumber-v0", "kwargs": {"numbers": 3}, "max_turns": 2},
    {"name": "prices", "id": "rlinf_envs:rlinf/PriceList-v0", "kwargs": {"things": 2}, "max_turns": 3},
]


def config(folder: Path, **run: Any) -> Config:
    return tiny_runs.config(
        folder,
        run={"max_steps": 3, **run},
        env={"id": "", "kwargs": {}, "tasks": TASKS, "num_tasks": 20},
        data={"pool": {"solved": 1.0, "unsolved": 0.0, "rest": 3}},
        evaluation={"size": 6, "env_kwargs": None},
    )


def timeless(line: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in line.items() if not name.startswith(("time/", "speed/", "weights/"))}


def test_a_mixture_trains_with_exact_shares_and_resumes_exactly(tmp_path: Path) -> None:
    tiny_runs.run(config(tmp_path / "whole"))
    whole = tiny_runs.logged(tmp_path / "whole")
    for line in whole[1:]:
        assert [line[f"rollout/groups/{name}"] for name in ("sums", "guess", "prices")] == [2, 1, 1]
        assert line["pool/seen"] > 0
    assert {name for name in whole[-1] if name.startswith("eval/accuracy/")} >= {
        "eval/accuracy/sums",
        "eval/accuracy/guess",
        "eval/accuracy/prices",
    }
    tiny_runs.run(config(tmp_path / "parts", max_steps=1))
    tiny_runs.run(config(tmp_path / "parts"))
    parts = tiny_runs.logged(tmp_path / "parts")
    assert [timeless(line) for line in parts[2:]] == [timeless(line) for line in whole[2:]]
