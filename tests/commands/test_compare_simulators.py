"""`rlinf eval` of a simulator's run, and `rlinf compare` of what it saved: start state by start state."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from rlinf.base.errors import UserError
from rlinf.commands.compare import main as compare
from rlinf.commands.evaluate import main as evaluate
from rlinf.config import load_mapping
from rlinf.train import run
from rlinf.train.evaluation.outcomes import outcome_from_json
from rlinf.train.evaluation.saved import read_evaluation
from rlinf.train.evaluation.start_outcomes import StartOutcome

LOCAL = ["cluster.backend=local", "logging.progress=none"]


class Even(gymnasium.Env):
    """One step; action 0 succeeds in start states of even numbers, and pays the number."""

    observation_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, scale: float = 1.0) -> None:
        self.scale = scale

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.number = options["reset_state_id"] if options else int(self.np_random.integers(1000))
        return np.full(1, self.number % 2, np.float32), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        success = bool(action == self.number % 2)
        return np.zeros(1, np.float32), float(self.number * success), True, False, {"success": success}


gymnasium.register("EvenForTests-v0", entry_point=Even)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("compared") / "run"
    settings = {
        "run": {"dir": str(folder), "max_steps": 20},
        "env": {"id": "EvenForTests-v0", "num_envs": 4, "reset_state_ids": [0, 1, 2, 3]},
        "policy": {"name": "actor_critic", "hidden_sizes": [8]},
        "rollout": {"batch_size": 8},
        "algorithm": {"adv_type": "grpo", "group_size": 8},
        "learner": {"optimizer": {"lr": 0.03}},
        "evaluation": {"size": 20, "reset_state_ids": list(range(10, 20))},
        "checkpoint": {"every": 1, "keep": 20},
        "cluster": {"backend": "local"},
        "logging": {"progress": "none", "tensorboard": False},
    }
    run(load_mapping(settings, source="test"), report=False)
    return folder


def saved(folder: Path, step: int, *settings: str) -> Path:
    assert evaluate([str(folder), "--step", str(step), *settings, *LOCAL]) == 0
    return read_evaluation(folder).path


def test_two_checkpoints_are_compared_by_the_start_states_that_both_played(
    trained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before, after = saved(trained, 1), saved(trained, 20)
    outcomes = [outcome_from_json(one) for one in json.loads(before.read_text())["outcomes"]]
    # Ten states in twenty episodes: each twice, and alike, since nothing is drawn.
    assert len({outcome.task for outcome in outcomes}) == len(outcomes) == 10
    assert all(len(outcome.returns) == len(outcome.success_once) == 2 for outcome in outcomes)
    assert {outcome.returns[0] for outcome in outcomes} <= {0.0, *map(float, range(10, 20))}
    capsys.readouterr()
    assert compare([str(before), str(after)]) == 0
    printed = capsys.readouterr().out
    assert "10 start states that both have\nreturn: " in printed
    first, last = (json.loads(path.read_text())["metrics"]["eval/success_once"] for path in (before, after))
    assert f"success_once: {first:.3f} -> {last:.3f}, difference {last - first:+.3f}" in printed
    assert last == 1.0 > first
    # A part of the states is compared with all of them.
    fewer = saved(trained, 20, "evaluation.reset_state_ids=[12,13,14]")
    assert compare([str(before), str(fewer)]) == 0
    printed = capsys.readouterr().out
    assert "evaluation.reset_state_ids: [10, 11, 12, 13, 14, 15, 16, 17, 18, 19] -> [12, 13, 14]" in printed
    assert "3 start states that both have (of 10)" in printed


def test_starts_that_the_seed_picks_are_paired_by_seed(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    by_seed = "evaluation.reset_state_ids=[]"
    before, after = saved(trained, 1, by_seed), saved(trained, 20, by_seed, "evaluation.size=8")
    capsys.readouterr()
    assert compare([str(before), str(after)]) == 0
    assert "8 start states that both have (of 20)" in capsys.readouterr().out
    elsewhere = saved(trained, 20, by_seed, "evaluation.seed=3")
    with pytest.raises(UserError, match="no task in common"):
        compare([str(after), str(elsewhere)])
    scaled = saved(trained, 20, by_seed, "env.kwargs={scale: 2.0}")
    with pytest.raises(UserError, match="no task in common"):
        compare([str(after), str(scaled)])


def test_an_evaluation_of_an_earlier_version_is_refused_with_what_to_do(trained: Path, tmp_path: Path) -> None:
    path = saved(trained, 20)
    older = tmp_path / "older.json"
    older.write_text(json.dumps({**json.loads(path.read_text()), "outcomes": []}))
    with pytest.raises(UserError, match="was written by an earlier version, without outcomes: make it again"):
        compare([str(older), str(path)])


def test_outcomes_come_back_as_they_were_written() -> None:
    for outcome in (StartOutcome("a", (1.0, 0.5), (True, False), (False, False)), StartOutcome("b", (2.0,))):
        assert outcome_from_json(json.loads(json.dumps(asdict(outcome)))) == outcome
