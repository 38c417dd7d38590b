"""`rlinf check` runs functions of a user's own once: what they return is seen before training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support import tiny_runs

from rlinf.commands.env_check import examine_env
from rlinf.commands.trial_check import trial_findings
from rlinf.config import load_mapping

PARTS = """
import torch
from torch import nn


def wrong_kind(inputs):
    return 1.0


def no_such_field(inputs):
    return inputs.rewrads


def reward_of_words(*, prompt, response, answer, row):
    return "good"


def fine(*, prompt, response, answer, row):
    return float(len(response))


class Encoder(nn.Module):
    def __init__(self, space):
        super().__init__()
        self.out_features = 8
        self.net = nn.Linear(4, 8)

    def forward(self, leaves):
        return self.net(leaves["observation"])


class ReadsATensor(Encoder):
    def forward(self, x):
        return self.net(x)


class Narrow(Encoder):
    def forward(self, leaves):
        return super().forward(leaves)[:, :3]


class Unnamed(Encoder):
    def __init__(self, space):
        super().__init__(space)
        del self.out_features
"""


@pytest.fixture
def parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module of the user's own, of another name in each test: modules are imported once."""
    name = f"tried_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(PARTS, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    return name


@pytest.mark.parametrize(
    ("part", "function", "words"),
    [
        ("adv_type", "wrong_kind", "must return Advantages"),
        ("adv_type", "no_such_field", "no attribute 'rewrads'"),
        ("loss_type", "wrong_kind", "must return TokenLoss"),
        ("reward", "reward_of_words", "must return a number, got 'good'"),
        pytest.param("reward", "fine", "", marks=pytest.mark.slow),
    ],
)
def test_functions_are_called_once(part: str, function: str, words: str, parts: str, tmp_path: Path) -> None:
    written: dict[str, Any] = tiny_runs.mapping(tmp_path / "run")
    name = f"{parts}:{function}"
    if part == "reward":
        written["env"]["kwargs"]["reward"] = {"custom": {name: 1.0}}
    else:
        written["algorithm"][part] = name
    findings = trial_findings(load_mapping(written))
    assert [finding.serious for finding in findings] == ([True] if words else [])
    assert all(words in finding.message and name in finding.message for finding in findings)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("encoder", "words"),
    [
        ("ReadsATensor", "forward is called with a mapping of leaves, here {'observation': [2, 4]}"),
        ("Narrow", "must return [2, 8], and it returned [2, 3]"),
        ("Unnamed", "must have out_features"),
        ("Encoder", ""),
    ],
)
def test_an_encoder_is_tried_on_observations(encoder: str, words: str, parts: str, tmp_path: Path) -> None:
    config = load_mapping(
        {
            "run": {"dir": str(tmp_path / "run")},
            "env": {"id": "CartPole-v1", "num_envs": 2},
            "policy": {"name": "actor_critic", "encoder": f"{parts}:{encoder}"},
            "algorithm": {"adv_type": "gae", "loss_type": "actor_critic"},
            "cluster": {"backend": "local"},
        }
    )
    serious = [finding.message for finding in examine_env(config) if finding.serious]
    assert len(serious) == bool(words)
    assert all(words in message for message in serious)


def test_without_parts_of_ones_own_no_step_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlinf.commands.trial_check._smallest", lambda *_arguments: pytest.fail("a step was run"))
    assert trial_findings(tiny_runs.config(tmp_path / "run")) == []
