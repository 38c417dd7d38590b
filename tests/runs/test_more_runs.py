"""Options of a run that the others leave at their defaults."""

import json
from pathlib import Path
from typing import Any

import torch
from tiny_runs import config, run

from rlinf.train import run_sft
from rlinf.train.evaluation.intervals import pass_at_k


def summary(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "summary.json").read_text())


def test_pass_at_k_with_intervals(tmp_path: Path) -> None:
    run(config(tmp_path / "run", run={"max_steps": 1}, evaluation={"samples": 4, "temperature": 1.0}))
    metrics = summary(tmp_path / "run")["metrics"]
    assert metrics["eval/accuracy"] <= metrics["eval/pass@2"] <= metrics["eval/pass@4"]
    assert metrics["eval/pass@4/n"] == 8.0


def test_pass_at_k_counts_every_subset() -> None:
    from itertools import combinations

    outcomes = [True, False, False, True, False]
    for k in (1, 2, 3):
        subsets = list(combinations(outcomes, k))
        assert abs(pass_at_k(5, 2, k) - sum(map(any, subsets)) / len(subsets)) < 1e-12


def test_gradient_checkpointing_gives_the_same_parameters(tmp_path: Path) -> None:
    run(config(tmp_path / "plain", run={"max_steps": 2}))
    run(config(tmp_path / "saving", run={"max_steps": 2}, policy={"gradient_checkpointing": True}))
    assert summary(tmp_path / "saving")["params_sha256"] == summary(tmp_path / "plain")["params_sha256"]


def test_the_newest_and_the_best_checkpoint_are_kept(tmp_path: Path) -> None:
    run(
        config(
            tmp_path / "run",
            run={"max_steps": 6},
            sft={"steps": 0},
            evaluation={"every": 1},
            checkpoint={"every": 1, "keep": 2, "best_metric": "eval/reward"},
        )
    )
    kept = {int(path.name.removeprefix("step_")) for path in (tmp_path / "run" / "checkpoints").glob("step_*")}
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    best = max(lines, key=lambda line: (line["eval/reward"], -line["step"]))["step"]
    assert kept == {5, 6} | ({best} if best else set())


def test_a_warm_start_alone_leaves_a_policy(tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    run_sft(config(tmp_path / "run", sft={"steps": 5}))
    assert summary(tmp_path / "run")["steps"] == 0
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "run" / "policy")
    assert all(torch.isfinite(parameter).all() for parameter in model.parameters())


def test_a_policy_from_a_folder_goes_on(tmp_path: Path) -> None:
    run_sft(config(tmp_path / "base", sft={"steps": 5}))
    again = config(
        tmp_path / "run",
        run={"max_steps": 1},
        sft={"steps": 0},
        policy={"path": str(tmp_path / "base" / "policy"), "architecture": {}},
    )
    run(again)
    before, after = summary(tmp_path / "base")["metrics"], summary(tmp_path / "run")["initial_metrics"]
    assert {name: value for name, value in after.items() if name.startswith("eval/")} == before
