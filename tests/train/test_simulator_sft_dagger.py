"""DAgger: a policy makes some decisions of an episode, and what the demonstrator does in the others is imitated."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_simulator_sft import RECIPE, TABLETOP, Flat, tasks

from rlinf.config import load
from rlinf.config.problems import ConfigErrors
from rlinf.data.granularity import Granularity
from rlinf.models.policy_requests import Decision, PolicyFacts, PolicyRequest, answer_to
from rlinf.rollouts.simulator.demonstrations import Demonstrations, Demonstrator
from rlinf.schema import EnvConfig, SftConfig
from rlinf.train.run import run
from rlinf.train.simulator_sft import Imitation


def play(share: float, action: tuple[float, float], chunk: int = 2) -> tuple[Demonstrations, int]:
    """Episodes in which a policy always does ``action``, and how often it was asked."""
    policy: Any = Flat(chunk)
    options = EnvConfig(TABLETOP, {"image_size": 16, "bodies": 1}, num_action_chunks=chunk)
    playing = Demonstrator(options, 7, 0.0, None, share, round=1).play(PolicyFacts.of(policy), tasks(6))
    asked, answer = 0, None
    while True:
        try:
            ask: PolicyRequest = playing.send(answer)
        except StopIteration as end:
            return end.value, asked
        if ask.method == "decide":
            asked += 1
            assert ask.arguments[0]["observation.image"].any()
            actions = np.tile(np.array(action, np.float32), (1, chunk, 1))
            answer = Decision(actions.reshape(1, -1), actions, np.zeros((1, 0), np.float32))
        else:
            answer = answer_to(policy, ask)


def test_only_what_the_demonstrator_does_is_kept_of_all_episodes() -> None:
    alone, never = play(0.0, (0.0, 0.0))
    shared, asked = play(0.5, (0.0, -1.0))  # back to the near edge, against the demonstrator
    assert never == 0
    assert asked > 6
    assert not (shared.actions == np.tile([0.0, -1.0], 2)).all(axis=1).any()
    # Set back again and again, it takes longer; episodes that run out of time are kept.
    assert len(shared.actions) > len(alone.actions)
    assert shared.solved == shared.tried == 6


class Rollout:
    """Three decisions of the demonstrator in each round, numbered by it."""

    def __init__(self) -> None:
        self.rounds: list[int] = []

    def demonstrations(self, episodes: int, perturbation: float, round: int = 0) -> list[Demonstrations]:
        self.rounds.append(round)
        assert perturbation == (0.0 if round else 0.2)
        numbers = np.full((3, 1), round, dtype=np.float32)
        return [Demonstrations({"x": numbers}, numbers, np.ones((3, 1), bool), Granularity(), 1, 1)]


def imitation(folder: Path, sent: list[int]) -> tuple[Imitation, Rollout]:
    rollout: Any = Rollout()
    options = SftConfig(steps=6, batch_size=2, perturbation=0.2, dagger_rounds=2)
    return Imitation(rollout, options, seed=0, folder=folder, send_weights=sent.append), rollout


def test_each_round_adds_to_the_pool_and_a_run_that_goes_on_finds_what_was_played(tmp_path: Path) -> None:
    sent: list[int] = []
    first, rollout = imitation(tmp_path, sent)
    seen = [sorted({int(number) for number in first.pool(step).actions[:, 0]}) for step in range(6)]
    assert seen == [[0], [0], [0, 1], [0, 1], [0, 1, 2], [0, 1, 2]]
    assert (rollout.rounds, sent) == ([0, 1, 2], [-4, -2])
    again, resumed = imitation(tmp_path, sent)
    assert np.array_equal(again.batch(5).actions, first.batch(5).actions)
    assert (resumed.rounds, sent) == ([0], [-4, -2])


@pytest.mark.slow
def test_a_run_learns_from_both(tmp_path: Path) -> None:
    file, sums = tmp_path / "recipe.yaml", []
    file.write_text(RECIPE)
    quiet = ["cluster.backend=local", "logging.progress=none", "logging.tensorboard=false", "run.max_steps=1"]
    for rounds in (0, 1):
        folder = tmp_path / str(rounds)
        run(load(file, [f"run.dir={folder}", f"sft.dagger_rounds={rounds}", *quiet]), report=False)
        sums.append(json.loads((folder / "summary.json").read_text())["params_sha256"])
    assert sums[0] != sums[1]
    assert (tmp_path / "1" / "dagger" / "1.npz").exists()
    assert not (tmp_path / "0" / "dagger").exists()


@pytest.mark.parametrize("share", ["0.95", "-0.1"])
def test_somebody_has_to_be_imitated(tmp_path: Path, share: str) -> None:
    file = tmp_path / "recipe.yaml"
    file.write_text(RECIPE)
    with pytest.raises(ConfigErrors, match=r"sft\.dagger_share must be"):
        load(file, ["sft.dagger_rounds=1", f"sft.dagger_share={share}"])
