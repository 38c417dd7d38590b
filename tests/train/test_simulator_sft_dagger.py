"""DAgger: a policy makes some decisions of an episode, and what the demonstrator does in the others is imitated."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rlinf_envs.sim.tabletop.gate import astray
from test_simulator_sft import RECIPE, TABLETOP, Flat, tasks

from rlinf.config import load
from rlinf.config.problems import ConfigErrors
from rlinf.data.granularity import Granularity
from rlinf.models.policy_requests import Decision, PolicyFacts, PolicyRequest, answer_to
from rlinf.rollouts.simulator.demonstrations import Demonstrations, Demonstrator
from rlinf.rollouts.simulator.experts import NoDemonstrationsError
from rlinf.schema import EnvConfig, SftConfig
from rlinf.train.run import run
from rlinf.train.simulator_sft import Imitation


def play(
    share: float, action: tuple[float, float], chunk: int = 2, gate: str | None = None
) -> tuple[Demonstrations, int]:
    """Episodes in which a policy always does ``action``, and how often it was called."""
    policy: Any = Flat(chunk)
    options = EnvConfig(TABLETOP, {"image_size": 16, "bodies": 1}, num_action_chunks=chunk)
    playing = Demonstrator(options, 7, 0.0, None, share, gate, round=1).play(PolicyFacts.of(policy), tasks(6))
    calls, answer = 0, None
    while True:
        try:
            request: PolicyRequest = playing.send(answer)
        except StopIteration as end:
            return end.value, calls
        if request.method == "decide":
            calls += 1
            assert request.arguments[0]["observation.image"].any()
            actions = np.tile(np.array(action, np.float32), (1, chunk, 1))
            answer = Decision(actions.reshape(1, -1), actions, np.zeros((1, 0), np.float32))
        else:
            answer = answer_to(policy, request)


def test_only_what_the_demonstrator_does_is_kept_of_all_episodes() -> None:
    alone, never = play(0.0, (0.0, 0.0))
    shared, calls = play(0.5, (0.0, -1.0))  # back to the near edge, against the demonstrator
    assert never == 0
    assert calls > 6
    assert not (shared.actions == np.tile([0.0, -1.0], 2)).all(axis=1).any()
    # Set back again and again, it takes longer; episodes that run out of time are kept.
    assert len(shared.actions) > len(alone.actions)
    assert shared.solved == shared.tried == 6


class Way:
    """An environment that tells these ways to go, one after the other."""

    def __init__(self, *ways: float) -> None:
        self.unwrapped, self._ways = self, list(ways)

    def way_to_go(self) -> float:
        return self._ways.pop(0)


def test_the_gate_by_hand() -> None:
    """0.44 is more than 0.05 behind 0.38: help until 0.33. Two decisions at 0.3 are idle: help until 0.25."""
    env: Any = Way(0.40, 0.38, 0.44, 0.35, 0.33, 0.30, 0.30, 0.30, 0.26, 0.24)
    helps = astray(env)
    assert [helps(None) for _ in range(10)] == [False, False, True, True, False, False, False, True, True, False]


def test_a_gate_hands_over_only_when_it_is_needed() -> None:
    """Away from the goal the demonstrator is needed again and again; of an open gate nothing is imitated."""
    helped, calls = play(0.0, (0.0, -1.0), gate="rlinf_envs.sim.tabletop.gate:astray")
    assert calls > 6
    assert helped.interventions >= 6
    assert len(helped.actions) >= helped.interventions
    assert helped.successes <= helped.tried == helped.solved == 6
    never, everything = play(0.0, (0.0, -1.0), gate=f"{__name__}:never_helps")
    assert (len(never.actions), never.interventions, never.successes) == (0, 0, 0)
    assert everything > calls
    always, nothing = play(0.0, (0.0, -1.0), gate=f"{__name__}:always_helps")
    assert (nothing, always.interventions, always.successes) == (0, 6, 6)
    with pytest.raises(NoDemonstrationsError, match="there is no gate 'rlinf_envs:nothing'"):
        play(0.0, (0.0, 0.0), gate="rlinf_envs:nothing")


def never_helps(env: Any) -> Any:
    return lambda observation: False


def always_helps(env: Any) -> Any:
    return lambda observation: True


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
    return Imitation(rollout, options, seed=0, folder=folder, success_key="success", send_weights=sent.append), rollout


def test_each_round_adds_to_the_pool_and_a_run_that_goes_on_finds_what_was_played(tmp_path: Path) -> None:
    sent: list[int] = []
    first, rollout = imitation(tmp_path, sent)
    seen = [sorted({int(number) for number in first.pool(step).actions[:, 0]}) for step in range(6)]
    assert seen == [[0], [0], [0, 1], [0, 1], [0, 1, 2], [0, 1, 2]]
    assert (rollout.rounds, sent) == ([0, 1, 2], [-4, -2])
    again, resumed = imitation(tmp_path, sent)
    assert np.array_equal(again.batch(5).actions, first.batch(5).actions)
    assert (resumed.rounds, sent) == ([0], [-4, -2])


def test_a_round_is_reported_once(tmp_path: Path) -> None:
    """Of steps 2 and 4, at which rounds begin; a run that goes on at step 3 has reported the first one before."""
    sent: list[int] = []
    first, _ = imitation(tmp_path, sent)
    reported = [first.prepare(first.batch(step))[1] for step in range(6)]
    assert [sorted(one) for one in reported] == [[], [], ROUND, [], ROUND, []]
    assert reported[2]["sft/dagger_decisions"] == 3.0
    again, _ = imitation(tmp_path, sent)
    assert [sorted(again.prepare(again.batch(step))[1]) for step in (3, 4)] == [[], ROUND]


def test_a_round_of_the_version_before_is_read_without_its_counts(tmp_path: Path) -> None:
    sent: list[int] = []
    first, _ = imitation(tmp_path, sent)
    expected = first.batch(5).actions
    for file in (tmp_path / "dagger").glob("*.npz"):
        with np.load(file) as kept:
            arrays = {name: kept[name] for name in kept if name in ("actions", "executed") or name.startswith("leaf/")}
        np.savez(file, **arrays)
    again, _ = imitation(tmp_path, sent)
    assert np.array_equal(again.batch(5).actions, expected)
    assert again.prepare(again.batch(4))[1] == {}


ROUND = ["sft/dagger_decisions", "sft/dagger_interventions", "sft/dagger_success"]

GATED = ["sft.dagger_rounds=1", "sft.gate=rlinf_envs.sim.tabletop.gate:astray"]


@pytest.mark.slow
def test_a_gated_run_goes_on_exactly_on_ray(tmp_path: Path, ray_session: None) -> None:
    file = tmp_path / "recipe.yaml"
    file.write_text(RECIPE)
    quiet = ["logging.progress=none", "logging.tensorboard=false", "checkpoint.every=1", *GATED]
    found = []
    for name, backend, steps in (("a", "local", 2), ("b", "ray", 1), ("b", "ray", 2)):
        more = [f"run.dir={tmp_path / name}", f"cluster.backend={backend}", f"run.max_steps={steps}"]
        run(load(file, [*more, *quiet]), report=False)
        found.append(json.loads((tmp_path / name / "summary.json").read_text())["params_sha256"])
    assert found[0] == found[2]
    lines = [json.loads(line) for line in (tmp_path / "a" / "metrics.jsonl").read_text().splitlines()]
    assert sum("sft/dagger_success" in line for line in lines) == 1


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


def test_a_gate_needs_rounds_and_no_share(tmp_path: Path) -> None:
    file = tmp_path / "recipe.yaml"
    file.write_text(RECIPE)
    load(file, GATED)
    for wrong, message in ((GATED[1:], "dagger_rounds is 0"), ([*GATED, "sft.dagger_share=0.3"], "decides who acts")):
        with pytest.raises(ConfigErrors, match=message):
            load(file, wrong)


@pytest.mark.parametrize("share", ["0.95", "-0.1"])
def test_the_policy_may_not_always_act_alone(tmp_path: Path, share: str) -> None:
    file = tmp_path / "recipe.yaml"
    file.write_text(RECIPE)
    with pytest.raises(ConfigErrors, match=r"sft\.dagger_share must be"):
        load(file, ["sft.dagger_rounds=1", f"sft.dagger_share={share}"])
