"""Runs on batches that another run kept, without samplers or environments, and steps that are trained again."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from simulator_runs import overrides, recipe
from tiny_runs import config

import rlinf.train
from rlinf.base.errors import UserError
from rlinf.cli import main
from rlinf.config import Config, load
from rlinf.train.plain_state import load_plain, save_plain
from rlinf.train.verify import verify


def kept(folder: Path, count: int, **sections: Any) -> Path:
    """A tiny text run that keeps ``count`` batches."""
    every = {"checkpoint": {"every": 1, "keep": 9}, **sections}
    rlinf.train.run(config(folder, **every), report=False, save_batches=count)
    return folder


def weights(folder: Path) -> str:
    return str(json.loads((folder / "summary.json").read_text())["params_sha256"])


def replayed(folder: Path, base: Config, batches: Path, **sections: Any) -> Path:
    """A run of ``base`` on kept batches."""
    changed = {name: dataclasses.replace(getattr(base, name), **keys) for name, keys in sections.items()}
    run = dataclasses.replace(base.run, dir=str(folder), name=folder.name)
    rlinf.train.run(dataclasses.replace(base, run=run, **changed), report=False, from_batches=batches)
    return folder


@pytest.mark.parametrize(
    "sections",
    [
        {},
        pytest.param(
            {"algorithm": {"group_size": 4, "num_minibatches": 2, "kl_beta": 0.1, "update_epochs": 2}},
            marks=pytest.mark.slow,
        ),
        {"rollout": {"staleness": 1}, "algorithm": {"group_size": 4, "rollout_correction": {"preset": "tis"}}},
    ],
    ids=["plain", "minibatches", "stale"],
)
def test_updates_on_all_kept_batches_give_the_same_weights(tmp_path: Path, sections: dict[str, Any]) -> None:
    first = kept(tmp_path / "first", 4, **sections)
    again = replayed(tmp_path / "again", config(tmp_path / "again", **sections), first)
    assert weights(again) == weights(first)
    assert json.loads((again / "summary.json").read_text())["steps"] == 4


def test_two_kept_batches_of_four_end_after_two_steps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = kept(tmp_path / "first", 2)
    again = replayed(tmp_path / "again", config(tmp_path / "again"), first / "batches")
    recorded = json.loads((first / "batches" / "weights.json").read_text())
    assert recorded.keys() == {"1", "2"}
    assert weights(again) == recorded["2"] != weights(first)
    assert "the same weights after step 2 as the run that kept the batches" in capsys.readouterr().out


def test_a_changed_batch_gives_other_weights_and_the_run_reports_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = kept(tmp_path / "first", 2)
    file = first / "batches" / "batch_000001.pt"
    saved = load_plain(file)
    batch = saved["rows"]
    save_plain({**saved, "rows": batch.replace(rewards=batch.rewards.flip(0))}, file)
    replayed(tmp_path / "again", config(tmp_path / "again"), first)
    assert "other weights after step 2" in capsys.readouterr().out


@pytest.mark.parametrize("kind", ["sac", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("ppo", "chunks"))])
def test_simulators_need_no_environment(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    base = load(recipe(tmp_path / "first", kind), overrides(tmp_path / "first", 3))
    rlinf.train.run(base, report=False, save_batches=3)
    monkeypatch.setattr("rlinf.train.assemble.simulator._build_env", None)
    again = replayed(tmp_path / "again", base, tmp_path / "first")
    assert weights(again) == weights(tmp_path / "first")


def test_a_missing_batch_and_a_folder_without_any_are_named(tmp_path: Path) -> None:
    first = kept(tmp_path / "first", 3)
    (first / "batches" / "batch_000001.pt").unlink()
    with pytest.raises(UserError, match=r"batch_000001\.pt is missing"):
        replayed(tmp_path / "again", config(tmp_path / "again"), first)
    with pytest.raises(UserError, match="has no saved batches: rlinf train FILE --save-batches"):
        replayed(tmp_path / "again", config(tmp_path / "again"), tmp_path)


def test_a_step_is_verified_from_the_checkpoint_before_it(tmp_path: Path) -> None:
    folder = kept(tmp_path / "run", 4)
    found = verify(folder, 3)
    assert (found.first, found.last, found.difference, found.weights) == (3, 3, None, "checkpoint")
    assert found.numbers > 20


def test_without_a_checkpoint_before_it_a_run_is_verified_from_its_start(tmp_path: Path) -> None:
    rlinf.train.run(config(tmp_path / "run", checkpoint={"every": 0}), report=False)
    shutil.rmtree(tmp_path / "run" / "checkpoints" / "step_000000")
    found = verify(tmp_path / "run", overrides=["cluster.backend=local"])
    assert (found.first, found.last, found.difference, found.weights) == (1, 4, None, "checkpoint")


@pytest.mark.parametrize(
    ("before", "now", "phase", "name"),
    [
        ("  temperature: 1.0", "  temperature: 0.9", "rollout", "column"),
        pytest.param(
            "normalize_by_std: true",
            "normalize_by_std: false",
            "preparation",
            "algorithm/advantage",
            marks=pytest.mark.slow,
        ),
        ("    lr: 0.001", "    lr: 0.002", "update", "train/lr"),
    ],
)
def test_the_first_phase_that_differs_is_named(tmp_path: Path, before: str, now: str, phase: str, name: str) -> None:
    file = kept(tmp_path / "run", 4) / "config.yaml"
    settings = file.read_text()
    assert before in settings
    file.write_text(settings.replace(before, now, 1))
    difference = verify(tmp_path / "run", 2).difference
    assert difference is not None
    assert (difference.step, difference.phase) == (2, phase)
    assert difference.name.startswith(name)


def test_a_weight_of_the_checkpoint_that_differs_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = kept(tmp_path / "run", 0)
    learner = folder / "checkpoints" / "step_000004" / "learner.pt"
    state = torch.load(learner, weights_only=True)
    next(tensor for name, tensor in state["policy"].items() if name.endswith("q_proj.weight"))[0, 0] += 1e-3
    torch.save(state, learner)
    assert main(["verify", str(folder)]) == 1
    output = capsys.readouterr().out
    assert "step 4: not the same. The first difference is in step 4, update: weight" in output
    assert "q_proj.weight was itself and is up to 0.001 away" in output
    learner.write_bytes(learner.read_bytes()[:1000])
    assert main(["verify", str(folder)]) == 2
    assert "learner.pt is damaged" in capsys.readouterr().err


def test_a_damaged_checkpoint_is_named_where_it_lies(tmp_path: Path) -> None:
    folder = kept(tmp_path / "run", 0)
    damaged = folder / "checkpoints" / "step_000002" / "learner.pt"
    damaged.write_bytes(damaged.read_bytes()[:1000])
    with pytest.raises(UserError, match=r"run/checkpoints/step_000002: learner.pt is cut short.*name another --step"):
        verify(folder, 3)


def test_keys_that_would_train_another_step_are_refused(tmp_path: Path) -> None:
    folder = kept(tmp_path / "run", 0)
    with pytest.raises(
        UserError, match=r"rollout\.temperature: 1\.0 -> 0\.9; .*optimizer\.lr: 0\.001 -> 0\.002 would"
    ) as raised:
        verify(folder, 2, ["rollout.temperature=0.9", "learner.optimizer.lr=0.002", "logging.samples_every=3"])
    assert "logging.samples_every" not in str(raised.value)


def test_a_step_that_was_not_logged_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="logged steps 1 to 4, not step 9"):
        verify(kept(tmp_path / "run", 0), 9)
    with pytest.raises(UserError, match="nothing is no run directory"):
        verify(tmp_path / "nothing")


@pytest.mark.slow
def test_backends_are_put_side_by_side(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = kept(tmp_path / "run", 2)
    assert main(["backends", str(folder)]) == 0
    output = capsys.readouterr().out
    assert "fsdp: the same weights as torch, bit for bit" in output
    assert "megatron: weights differ from torch by at most" in output
