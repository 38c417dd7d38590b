"""Warm starts: what they are evaluated against, what they log, and what they imitate."""

import json
from pathlib import Path
from typing import Any

import pytest
import tiny_runs
import torch
from tiny_runs import config, run

from rlinf.report.runs import read_run
from rlinf.train import evaluate_run, run_sft
from rlinf.train.run_state import RunState


def summary(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "summary.json").read_text())


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_the_table_of_a_warm_start_has_an_evaluation_before_it_and_one_after(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    run_sft(config(folder, sft={"steps": 4, "lr": 0.05, "warmup_steps": 0}, logging={"progress": "plain"}))
    output = capsys.readouterr().out
    assert "before" in output
    assert "after" in output
    assert "samples" not in output.splitlines()[-2]
    found, logged = summary(folder), lines(folder)
    assert [line["step"] for line in logged] == [-4, -3, -2, -1, 0]
    assert all("sft/loss" in line for line in logged[:-1])
    assert logged[0]["sft/loss"] > logged[-2]["sft/loss"]
    first = {name: value for name, value in logged[0].items() if name.startswith("eval/")}
    assert found["initial_metrics"] == first
    assert found["initial_metrics"]["eval/response_length"] != found["metrics"]["eval/response_length"] or (
        found["initial_metrics"]["eval/reward"] != found["metrics"]["eval/reward"]
    )
    record = read_run(folder)
    assert record.values("sft/loss") == [line["sft/loss"] for line in logged[:-1]]
    assert len(record.values("eval/accuracy")) == 2


def test_the_evaluation_before_a_warm_start_changes_nothing_in_it(tmp_path: Path) -> None:
    run_sft(config(tmp_path / "with"))
    run_sft(config(tmp_path / "without", evaluation={"size": 0, "env_kwargs": None}))
    assert summary(tmp_path / "with")["params_sha256"] == summary(tmp_path / "without")["params_sha256"]


def test_evaluations_on_the_way_stand_with_their_weights_and_change_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sft = {"steps": 4, "lr": 0.05, "warmup_steps": 0}
    run_sft(config(tmp_path / "without", sft=sft))
    run_sft(config(tmp_path / "with", sft={**sft, "evaluate_every": 2}, logging={"progress": "plain"}))
    assert summary(tmp_path / "with")["params_sha256"] == summary(tmp_path / "without")["params_sha256"]
    assert [line["step"] for line in lines(tmp_path / "with") if "eval/reward" in line] == [-4, -2, 0]
    assert "step 2 of the warm start:" in capsys.readouterr().out


class Stop(Exception):
    """In the place of a kill."""


@pytest.mark.parametrize("alone", [True, False])
def test_a_warm_start_that_goes_on_logs_every_step_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, alone: bool
) -> None:
    small: dict[str, Any] = {"run": {"max_steps": 0 if alone else 1}, "sft": {"steps": 5}, "checkpoint": {"every": 2}}
    names = ("eval/reward", "eval/accuracy", "eval/response_length")
    run(config(tmp_path / "straight", **small))
    update = RunState.save
    saved = []

    def stop_after(self: RunState) -> None:
        update(self)
        saved.append(self.order)
        if len(saved) == 2:
            raise Stop

    with monkeypatch.context() as patched:
        patched.setattr(RunState, "save", stop_after)
        with pytest.raises(Stop):
            run(config(tmp_path / "cut", **small))
    # Lines beyond the checkpoint, as a kill leaves them.
    with (tmp_path / "cut" / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"step": -1, "sft/loss": 99.0}) + "\n")
    run(config(tmp_path / "cut", **small))

    def losses(folder: Path) -> list[tuple[int, float | None]]:
        return [(line["step"], line.get("sft/loss")) for line in lines(folder)]

    assert losses(tmp_path / "cut") == losses(tmp_path / "straight")
    straight, cut = summary(tmp_path / "straight"), summary(tmp_path / "cut")
    assert cut["params_sha256"] == straight["params_sha256"]
    for metrics in ("initial_metrics", "metrics"):
        assert [cut[metrics][name] for name in names] == [straight[metrics][name] for name in names]


def test_training_after_a_warm_start_has_its_first_evaluation_at_step_0(tmp_path: Path) -> None:
    run(config(tmp_path / "run", run={"max_steps": 1}))
    logged = lines(tmp_path / "run")
    assert [line["step"] for line in logged] == [-3, -2, -1, 0, 1]
    assert [line["step"] for line in logged if "eval/accuracy" in line] == [0, 1]


def test_a_cached_warm_start_is_evaluated_before_and_after_too(tmp_path: Path) -> None:
    cached = {"sft": {"cache": str(tmp_path / "cache")}, "logging": {"progress": "plain"}}
    run_sft(config(tmp_path / "first", **cached))
    run_sft(config(tmp_path / "second", **cached))
    first, second = summary(tmp_path / "first"), summary(tmp_path / "second")
    assert second["initial_metrics"] == first["initial_metrics"] != {}
    assert [line["step"] for line in lines(tmp_path / "second")] == [-3, 0]


def test_training_goes_on_from_a_warm_start_alone_as_if_it_had_been_one_run(tmp_path: Path) -> None:
    run(config(tmp_path / "straight", run={"max_steps": 1}))
    run_sft(config(tmp_path / "parts"))
    run(config(tmp_path / "parts", run={"max_steps": 1}))
    straight, parts = summary(tmp_path / "straight"), summary(tmp_path / "parts")
    assert parts["params_sha256"] == straight["params_sha256"]
    assert parts["initial_metrics"]["eval/reward"] == straight["initial_metrics"]["eval/reward"]
    assert [line["step"] for line in lines(tmp_path / "parts")] == [-3, -2, -1, 0, 1]


def plain_pairs(folder: Path) -> dict[str, Any]:
    """Settings for a dataset of prompts with responses."""
    path = folder / "pairs.jsonl"
    rows = [{"prompt": f"Write {n}", "response": f"  Sure: {n}, friend!\n"} for n in range(20)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    kwargs = {"path": str(path), "response_field": "response"}
    return {"id": "rlinf_envs:rlinf/Math-v0", "kwargs": kwargs}


def test_a_warm_start_trains_on_responses_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from rlinf.learners.torch import TorchLearner

    batches = []
    update = TorchLearner.update

    def watched(self: TorchLearner, batch: Any, *, step: int) -> Any:
        batches.append(batch)
        return update(self, batch, step=step)

    monkeypatch.setattr(TorchLearner, "update", watched)
    sections = {"evaluation": {"size": 0, "env_kwargs": None}, "logging": {"progress": "plain"}}
    run_sft(config(tmp_path / "run", env=plain_pairs(tmp_path), sft={"steps": 1, "max_tasks": 1}, **sections))
    assert "sft imitates, for example: Write 0 -> Sure: 0, friend!" in capsys.readouterr().out
    from rlinf.models.loading import load_tokenizer

    tokenizer = load_tokenizer(str(tmp_path / "run" / "tokenizer"))
    tokens = batches[0].actions[0][batches[0].mask[0]]
    assert tokenizer.decode(tokens.flatten().tolist(), skip_special_tokens=True) == "  Sure: 0, friend!\n"
    assert bool(torch.isfinite(batches[0].rollout_logprobs).all())


def test_responses_without_answers_are_not_evaluated(tmp_path: Path) -> None:
    with pytest.raises(Exception, match=r"set evaluation\.size: 0"):
        run_sft(config(tmp_path / "run", env=plain_pairs(tmp_path), sft={"steps": 1}))


def test_a_checkpoint_inside_of_a_warm_start_can_be_evaluated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_sft(config(tmp_path / "run", logging={"progress": "plain"}, checkpoint={"every": 1, "keep": 9}))
    evaluate_run(str(tmp_path / "run"), step=-2)
    assert "after step 1 of the warm start" in " ".join(capsys.readouterr().out.split())
    again = evaluate_run(str(tmp_path / "run"))
    assert again.metrics == summary(tmp_path / "run")["metrics"]
    assert {path.name for path in (tmp_path / "run" / "evaluations").iterdir()} == {
        "step_-00002.json",
        "step_000000.json",
    }


def test_another_learning_rate_goes_on_from_the_exported_policy(tmp_path: Path) -> None:
    """A run is not continued with other settings: its policy is where a new one begins."""
    run(config(tmp_path / "base", run={"max_steps": 2}))
    start = {"path": str(tmp_path / "base" / "policy"), "architecture": {}, "tokenizer": {}}
    more: dict[str, Any] = {"run": {"max_steps": 2}, "policy": start, "sft": {"steps": 0}}
    found = []
    for lr in (1e-3, 5e-3):
        folder = tmp_path / str(lr)
        run(config(folder, learner={"optimizer": {"lr": lr}}, **more))
        found.append(summary(folder)["params_sha256"])
        assert all(line["train/grad_norm"] > 0 for line in tiny_runs.logged(folder)[1:])
        first, last = summary(folder)["initial_metrics"], summary(tmp_path / "base")["metrics"]
        assert {name: first[name] for name in last} == last
    assert len({summary(tmp_path / "base")["params_sha256"], *found}) == 3
