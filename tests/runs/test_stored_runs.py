"""`rlinf eval --step` and `rlinf convert` on the checkpoints of runs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import simulator_runs
import torch
from safetensors.torch import load_file
from tiny_runs import config

from rlinf.cli import main
from rlinf.train import run


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished") / "run"
    keep = {"every": 1, "keep": 9}
    run(config(folder, run={"max_steps": 2}, evaluation={"every": 1}, checkpoint=keep, logging={"progress": "plain"}))
    return folder


def lines(folder: Path) -> dict[int, dict[str, Any]]:
    found = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return {line["step"]: line for line in found}


def same(one: Path, other: Path, file: str = "model.safetensors") -> bool:
    """Whether two folders hold the same weights."""
    left, right = load_file(one / file), load_file(other / file)
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


def test_an_older_checkpoint_is_evaluated_as_it_was_then(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    logged = (finished / "metrics.jsonl").read_bytes()
    assert main(["eval", str(finished), "--step", "1"]) == 0
    output = " ".join(capsys.readouterr().out.split())
    assert "after step 1" in output
    saved = json.loads((finished / "evaluations" / "step_000001.json").read_text())
    at_the_time = {name: value for name, value in lines(finished)[1].items() if name.startswith("eval/")}
    assert saved["metrics"] == at_the_time
    assert saved["step"] == 1
    assert (finished / "metrics.jsonl").read_bytes() == logged


@pytest.mark.parametrize(
    ("change", "step", "words"),
    [
        ("nothing", 7, "has no checkpoint of step 7: there are those of -2, -1, 0, 1, 2"),
        ("damage", 1, "the checkpoint of step 1 is damaged"),
        ("remove", 1, "has no checkpoint"),
        ("no run", 1, "is no run directory"),
    ],
)
@pytest.mark.parametrize("command", ["eval", "convert"])
def test_a_checkpoint_that_is_not_there_is_named_in_a_sentence(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str, change: str, step: int, words: str
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(finished, folder)
    checkpoint = folder / "checkpoints" / f"step_{step:06d}"
    if change == "damage":
        (checkpoint / "learner.pt").write_bytes(b"?")
    elif change == "remove":
        shutil.rmtree(folder / "checkpoints")
    elif change == "no run":
        (folder / "config.yaml").unlink()
        words = words if command == "eval" else "is no run, no RUN/checkpoints/step_N"
    arguments = {
        "eval": ["eval", str(folder), "--step", str(step)],
        "convert": ["convert", str(checkpoint), str(tmp_path / "out")],
    }
    assert main(arguments[command]) == 2
    caught = capsys.readouterr()
    output = caught.out + caught.err
    assert words in output
    assert "Traceback" not in output
    assert not (tmp_path / "out").exists()


def test_a_checkpoint_becomes_a_folder_that_transformers_loads(finished: Path, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    newest, older = tmp_path / "newest", tmp_path / "older"
    assert main(["convert", str(finished), str(newest)]) == 0
    assert main(["convert", str(finished / "checkpoints" / "step_000001"), str(older)]) == 0
    assert same(newest, finished / "policy")
    assert not same(older, newest)
    model, tokenizer = AutoModelForCausalLM.from_pretrained(older), AutoTokenizer.from_pretrained(older)
    assert model(tokenizer("1 + 1 =", return_tensors="pt")["input_ids"]).logits.isfinite().all()
    assert sorted(path.name for path in newest.iterdir()) == sorted(
        path.name for path in (finished / "policy").iterdir()
    )


def test_a_folder_with_something_in_it_is_not_written_into(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine").write_text("")
    assert main(["convert", str(finished), str(tmp_path)]) == 2
    assert "is not empty" in capsys.readouterr().err


def test_converting_a_run_without_a_target_is_refused(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["convert", str(finished)]) == 2
    assert "OUT: name a new folder" in capsys.readouterr().err


def test_adapters_are_merged_as_export_merges_them(tmp_path: Path) -> None:
    pytest.importorskip("peft")
    folder = tmp_path / "run"
    run(config(folder, run={"max_steps": 1}, policy={"lora": {"rank": 2}}))
    assert main(["convert", str(folder), str(tmp_path / "out")]) == 0
    assert same(tmp_path / "out", folder / "policy")


def test_sharded_checkpoints_are_read_in_one_process(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    run(config(folder, run={"max_steps": 1}, learner={"backend": "fsdp"}))
    assert main(["convert", str(folder), str(tmp_path / "out")]) == 0
    assert same(tmp_path / "out", folder / "policy")


@pytest.mark.parametrize("kind", ["ppo", "sac"])
def test_a_simulators_policy_is_exported_too(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "run"
    simulator_runs.summary(folder, kind, 2)
    assert main(["convert", str(folder), str(tmp_path / "out")]) == 0
    exported = {path.name: path.read_bytes() for path in (folder / "policy").iterdir()}
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == exported
