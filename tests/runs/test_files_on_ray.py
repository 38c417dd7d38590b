"""Supervised training, preferences and evaluation on files give on Ray what they give in one process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tiny_runs import config, mapping

from rlinf.commands.evaluate import main as evaluate
from rlinf.config import load_mapping
from rlinf.train import run
from rlinf.train.evaluation.saved import read_evaluation

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("ray_session")]
ROWS = {
    "imitation": {"prompt": "{n} + 1 =", "response": " {more}"},
    "dpo": {"prompt": "{n} + 1 =", "chosen": " {more}", "rejected": " none"},
}


def written(folder: Path, row: dict[str, str]) -> str:
    rows = [{name: text.format(n=n, more=n + 1) for name, text in row.items()} for n in range(24)]
    (folder / "rows.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows))
    return str(folder / "rows.jsonl")


@pytest.mark.parametrize("loss", ROWS)
def test_training_on_a_file(loss: str, tmp_path: Path) -> None:
    data = written(tmp_path, ROWS[loss])
    found = {}
    for backend in ("local", "ray"):
        made: dict[str, Any] = mapping(tmp_path / backend, cluster={"backend": backend}, run={"max_steps": 0})
        made["sft"] = {"steps": 4, "batch_size": 4, "lr": 0.01, "data": data, "loss": loss, "eval_fraction": 0.25}
        for section in ("env", "evaluation", "rollout", "algorithm", "data"):
            made.pop(section)
        run(load_mapping(made, source="test"), report=False)
        summary = json.loads((tmp_path / backend / "summary.json").read_text())
        metrics = {name: value for name, value in summary["metrics"].items() if name.startswith("eval/")}
        found[backend] = summary["params_sha256"], metrics
    assert found["ray"] == found["local"]


def test_evaluation_of_a_bare_folder_on_a_file(tmp_path: Path) -> None:
    run(config(tmp_path / "run", run={"max_steps": 1}, evaluation={"size": 0, "env_kwargs": None}), report=False)
    data = tmp_path / "sums.jsonl"
    data.write_text("".join(json.dumps({"question": f"{n} + 3 =", "answer": str(n + 3)}) + "\n" for n in range(6)))
    answers = []
    for backend in ("local", "ray"):
        words = [f"cluster.backend={backend}", "logging.progress=none", "rollout.max_new_tokens=4"]
        out = ["--out", str(tmp_path / backend), "--data", str(data), "--samples", "3", "--temperature", "1"]
        assert evaluate([str(tmp_path / "run" / "policy"), *out, *words]) == 0
        answers.append([one.answers for one in read_evaluation(tmp_path / backend).outcomes])
    assert answers[0] == answers[1]
