"""A run whose samplers answer with other weights than it trains reports it at once, and ends with an exit code."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from tiny_runs import GRADED_BY_LENGTH, config, logged, mapping, run
from torch import Tensor

from rlinf.base.errors import OtherPolicy
from rlinf.cli import main
from rlinf.data.messages import Metrics, WeightUpdate

LAST_GOOD = 2
"""The version of the weights that faulty samplers take last."""


def idle(config: Any, spec: Any) -> Any:
    """The `hf` sampler whose load does nothing after the first updates."""
    from rlinf.samplers.build import SAMPLERS

    sampler: Any = SAMPLERS["hf"](config, spec)
    load = sampler.load
    sampler.load = lambda update: load(update) if update.version <= LAST_GOOD else {}
    return sampler


class Opaque:
    """A sampler around `hf` that has no way to read its weights back."""

    def __init__(self, config: Any, spec: Any, *, names_versions: bool, faulty: bool) -> None:
        from rlinf.samplers.build import SAMPLERS

        self._inner: Any = SAMPLERS["hf"](config, spec)
        self._names_versions, self._faulty = names_versions, faulty
        for name in ("sample", "stream", "session", "abort", "sleep", "wake"):
            setattr(self, name, getattr(self._inner, name))

    def load(self, update: WeightUpdate) -> Metrics:
        if not self._faulty or update.version <= LAST_GOOD:
            figures: Metrics = self._inner.load(update)
            return figures
        if self._names_versions:
            self._inner._version = update.version
        return {}


def opaque(config: Any, spec: Any, *, names_versions: bool = True, faulty: bool = True) -> Any:
    return Opaque(config, spec, names_versions=names_versions, faulty=faulty)


MOVING = {
    "run": {"max_steps": 9},
    "env": {"kwargs": GRADED_BY_LENGTH},
    "sft": {"steps": 0},
    "learner": {"optimizer": {"lr": 1e-2}},
    "evaluation": {"size": 4},
    "checkpoint": {"every": 1, "export": False},
}
"""Every update changes the policy by more than rounding does."""


def command(folder: Path, **sections: Any) -> int:
    """`rlinf train` of a file; its exit code."""
    file = folder / "run.yaml"
    file.write_text(yaml.safe_dump(mapping(folder / "run", **{**MOVING, **sections})))
    return main(["train", str(file)])


def checkpoints(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "run" / "checkpoints").glob("step_*"))


def test_a_load_that_does_nothing_ends_the_run_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(tmp_path, rollout={"sampler": f"{__name__}:idle"}) == 1
    output = capsys.readouterr().err
    assert "weights 3 were sent" in output
    assert "sampler 0:" in output
    assert f"Checkpoints are kept: the same command continues from step {LAST_GOOD}." in output
    assert not (tmp_path / "run" / "summary.json").exists()
    assert checkpoints(tmp_path)[-1] == f"step_{LAST_GOOD:06d}"


def test_old_versions_end_a_run_whose_sampler_cannot_be_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = {"sampler": f"{__name__}:opaque", "sampler_options": {"names_versions": False}}
    assert command(tmp_path, rollout=options) == 1
    output = capsys.readouterr()
    assert "Opaque has no method held_digests" in output.out
    assert "sampler 0 answered with weights 2" in output.err
    assert "weights 3 were sent to it" in output.err


def test_a_version_that_advances_without_weights_ends_the_run_by_the_gap(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(tmp_path, rollout={"sampler": f"{__name__}:opaque", "verify_weights": False}) == 1
    output = capsys.readouterr()
    assert output.out.count("WARNING: step 4: sampler and learner differ by") == 1
    assert "step 6: sampler and learner differ by" in output.err
    assert "above rollout.gap_limit for 3 steps in a row" in output.err
    assert "continues from step 3" in output.err
    assert checkpoints(tmp_path)[-1] == "step_000003"
    gaps = {line["step"]: line["train/sampler_logprob_gap"] for line in logged(tmp_path / "run") if line["step"]}
    assert max(gaps[step] for step in (1, 2, 3)) < 1e-4
    assert min(gaps[step] for step in (4, 5, 6)) > 0.02


def test_a_run_may_go_on_above_the_limit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = {"sampler": f"{__name__}:opaque", "gap_steps": None, "verify_weights": False}
    assert command(tmp_path, rollout=options, run={"max_steps": 6}) == 0
    assert capsys.readouterr().out.count("WARNING: step") == 1
    assert checkpoints(tmp_path)[-1] == "step_000006"


def test_answers_to_fixed_prompts_end_a_run_whose_sampler_cannot_be_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(tmp_path, rollout={"sampler": f"{__name__}:opaque"}) == 1
    output = capsys.readouterr()
    assert "answers to 16 fixed prompts" in output.out
    assert "weights 3 were sent, and answers to fixed prompts are not those of these weights" in output.err
    assert "the sampler's show 0% of that" in output.err
    assert checkpoints(tmp_path)[-1] == f"step_{LAST_GOOD:06d}"


def test_small_updates_that_never_arrive_are_found_below_the_limit_of_the_gap(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The two policies stay closer than rounding may be: the changes of successive updates distinguish them."""
    sections = {"learner": {"optimizer": {"lr": 3e-4}}, "rollout": {"sampler": f"{__name__}:opaque", "gap_steps": None}}
    assert command(tmp_path, **sections) == 1
    assert "the sampler's show 0% of that" in capsys.readouterr().err
    lines = [line for line in logged(tmp_path / "run") if line["step"] > LAST_GOOD]
    assert all(line["train/sampler_logprob_gap"] < 0.02 for line in lines)


class RoundedModel(Opaque):
    """An opaque sampler that computes with numbers of 8 bits."""

    def load(self, update: WeightUpdate) -> Metrics:
        if self._faulty and update.version > LAST_GOOD:
            self._inner._version = update.version
            return {}
        rounded = {name: _in_8_bits(tensor) for name, tensor in update.tensors.items()}
        figures: Metrics = self._inner.load(replace(update, tensors=rounded))
        return figures


def _in_8_bits(tensor: Tensor) -> Tensor:
    step = tensor.detach().abs().amax().clamp(min=1e-6) / 127
    return torch.round(tensor.detach() / step) * step


def rounded(config: Any, spec: Any, *, faulty: bool) -> Any:
    return RoundedModel(config, spec, names_versions=True, faulty=faulty)


@pytest.mark.parametrize("faulty", [False, True])
def test_a_sampler_of_lower_precision_is_probed_by_what_updates_change(
    faulty: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = {"sampler": f"{__name__}:rounded", "sampler_options": {"faulty": faulty}}
    slower = {"optimizer": {"lr": 3e-3}}
    assert command(tmp_path, rollout=options, learner=slower) == int(faulty)
    assert ("the sampler's show" in capsys.readouterr().err) == faulty
    shares = [line["weights/answer_change"] for line in logged(tmp_path / "run") if "weights/answer_change" in line]
    assert shares
    assert min(shares) > 0.8


HEALTHY: dict[str, dict[str, Any]] = {
    "asynchronous": {"rollout": {"staleness": 2, "max_new_tokens": 24, "generation_batch_size": 24}},
    "asynchronous, corrected": {
        "rollout": {"staleness": 2, "max_new_tokens": 24},
        "algorithm": {"loss_type": "decoupled"},
    },
    "whole batches ahead": {"rollout": {"staleness": 1}, "algorithm": {"adv_type": "remax", "group_size": 1}},
    "over-sampling": {"rollout": {"over_sampling": 0.5, "max_new_tokens": 24}},
    "several optimiser steps": {"algorithm": {"update_epochs": 2, "num_minibatches": 2}},
    "unreadable": {"rollout": {"sampler": f"{__name__}:opaque", "sampler_options": {"faulty": False}}},
}


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=[pytest.mark.slow] * (kind in ("asynchronous", "several optimiser steps")))
        for kind in HEALTHY
    ],
)
def test_healthy_runs_raise_no_alarm_and_log_the_gap_at_every_step(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sections = {**MOVING, **HEALTHY[kind], "run": {"max_steps": 5}}
    run(config(tmp_path, **sections))
    assert "WARNING: step" not in capsys.readouterr().out
    lines = [line for line in logged(tmp_path) if line["step"]]
    assert all("train/sampler_logprob_gap" in line for line in lines)
    fresh = [line for line in lines if not line.get("train/sampler_logprob_gap_age")]
    assert max(line["train/sampler_logprob_gap"] for line in fresh) < 1e-4
    assert {line["weights/proved"] for line in lines} == {0.0 if kind == "unreadable" else 1.0}


def test_the_proof_can_be_turned_off(tmp_path: Path) -> None:
    run(config(tmp_path, **{**MOVING, "run": {"max_steps": 1}, "rollout": {"verify_weights": False}}))
    assert "weights/proved" not in logged(tmp_path)[-1]


def test_a_policy_that_acts_in_env_workers_is_compared_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from rlinf.rollouts.simulator.env_worker import EnvWorker

    load = EnvWorker.load
    monkeypatch.setattr(
        EnvWorker, "load", lambda self, update: load(self, update) if update.version < LAST_GOOD else {}
    )
    sections = {
        "run": {"name": "cart", "dir": str(tmp_path), "max_steps": 4},
        "env": {"id": "CartPole-v1", "num_envs": 2},
        "policy": {"name": "actor_critic"},
        "rollout": {"num_steps": 8},
        "algorithm": {"adv_type": "gae", "loss_type": "actor_critic"},
        "cluster": {"backend": "local"},
        "evaluation": {"size": 0},
        "logging": {"progress": "none", "tensorboard": False},
    }
    from rlinf.config import load_mapping

    with pytest.raises(OtherPolicy, match=r"weights 2 were sent.*\n  env 0:"):
        run(load_mapping(sections, source="test"))
    assert json.loads((tmp_path / "metrics.jsonl").read_text().splitlines()[-1])["step"] == 1
