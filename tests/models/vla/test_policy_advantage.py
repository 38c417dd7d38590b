"""Advantage conditioning: which context acts, guidance by hand, what batches name, and whole runs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from test_flow import SMALL, flow

from rlinf.cli import main
from rlinf.config import ConfigErrors, load
from rlinf.data.granularity import Granularity
from rlinf.data.inputs import ObservationInputs
from rlinf.data.spaces import ADVANTAGE
from rlinf.rollouts.simulator.demonstrations import Demonstrations, imitation_batch
from rlinf.schema import SftConfig
from rlinf.train.run import run
from rlinf.train.simulator_sft import Imitation

TINY = [one for one in SMALL if not one.startswith("sft.demonstrations")]


def test_guidance_goes_beyond_the_positive_velocity():
    """v = v(without) + 2.5 (v(positive) - v(without)), in acting and in the likelihood alike."""
    head = flow(chunk=1)
    positive, without, points = torch.randn(4, 64), torch.randn(4, 64), torch.randn(4, 2)
    times = torch.full((4,), 0.5)
    head._guidance = 2.5
    one, none = (head.speed(context, points, times) for context in (positive, without))
    both = torch.cat([positive, without], dim=1)
    torch.testing.assert_close(head.speed(both, points, times), none + 2.5 * (one - none))
    chain = head.sample(both, torch.randn(4, head.noise_size))
    assert torch.isfinite(head.log_prob(both, chain)).all()


def test_a_batch_tells_which_decisions_were_better():
    pool = Demonstrations(
        {"observation": np.arange(4, dtype=np.float32)[:, None]},
        np.zeros((4, 2), np.float32),
        np.ones((4, 1), bool),
        Granularity(),
        1,
        1,
        positive=np.array([True, False, True, False]),
    )
    rows, dropped = np.array([0, 1, 2, 3]), np.array([False, False, True, False])
    batch = imitation_batch(pool, rows, np.zeros((4, 0)), dict, dropped)
    assert ObservationInputs.of(batch.inputs).observations[ADVANTAGE][:, 0].tolist() == [1, 2, 0, 2]
    warm_start = Imitation(
        None,  # type: ignore[arg-type]
        SftConfig(),
        seed=0,
        folder=Path(),
        success_key="success",
        send_weights=print,
    )
    assert warm_start.prepare(batch)[1] == {"sft/positive_fraction": pytest.approx(1 / 3)}
    pool.positive = None
    plain = imitation_batch(pool, rows, np.zeros((4, 0)))
    assert ADVANTAGE not in ObservationInputs.of(plain.inputs).observations
    assert warm_start.prepare(plain)[1] == {}


@pytest.fixture(scope="module")
def episodes(tmp_path_factory) -> Path:
    """Eight episodes of a demonstrator that often fails, with labels."""
    folder = tmp_path_factory.mktemp("tabletop") / "set"
    recorded = ["record", "tabletop_flow", "--perturbation", "0.9", "--keep-failures", "--episodes", "8"]
    assert main([*recorded, "--out", str(folder)]) == 0
    assert main(["label", "tabletop_flow", "--data", str(folder), "--steps", "4", "--batch-size", "8"]) == 0
    return folder


def settings(folder: Path, data: Path, steps: int, *more: str) -> list[str]:
    imitated = [f"sft.dataset={data}", "sft.steps=2", "sft.perturbation=0", "policy.flow.advantage=true"]
    return [*TINY, *imitated, f"run.dir={folder}", f"run.max_steps={steps}", *more]


def played(folder: Path, data: Path, steps: int, *more: str) -> dict:
    run(load("tabletop_flow", settings(folder, data, steps, *more)), report=False)
    return json.loads((folder / "summary.json").read_text())


@pytest.mark.slow
def test_a_run_imitates_labels_then_learns_and_goes_on_exactly(tmp_path, episodes, ray_session):
    guided = "policy.flow.guidance=1.5"
    straight = played(tmp_path / "straight", episodes, 2, guided)
    played(tmp_path / "cut", episodes, 1, guided, "cluster.backend=ray")
    resumed = played(tmp_path / "cut", episodes, 2, guided, "cluster.backend=ray")
    assert straight["params_sha256"] == resumed["params_sha256"]
    lines = [json.loads(line) for line in (tmp_path / "straight" / "metrics.jsonl").read_text().splitlines()]
    assert 0 <= lines[0]["sft/positive_fraction"] <= 1
    weights = {name: played(tmp_path / name, episodes, 0, *more)["params_sha256"] for name, more in VARIANTS.items()}
    assert len(set(weights.values())) == 2, (
        "without dropout the indicator is another one; guidance changes no imitation"
    )
    assert weights["guided"] == weights["plain"] != weights["always"]


VARIANTS = {
    "plain": (),
    "guided": ("policy.flow.guidance=3",),
    "always": ("policy.flow.advantage_dropout=0",),
}


@pytest.mark.slow
def test_values_that_explain_little_are_named(tmp_path, episodes, capsys):
    folder = shutil.copytree(episodes, tmp_path / "set")
    assert main(["label", "tabletop_flow", "--data", str(folder), "--steps", "2", "--batch-size", "8"]) == 0
    assert "record more episodes" in capsys.readouterr().out


@pytest.mark.slow
def test_an_exported_policy_acts_after_positive_decisions(tmp_path, episodes):
    from rlinf.models.vla.build import load_vla

    played(tmp_path / "run", episodes, 0)
    policy = load_vla(str(tmp_path / "run" / "policy"))
    leaves = {
        name: torch.zeros(2, *space.shape, dtype=torch.uint8 if len(space.shape) == 3 else torch.float32)
        for name, space in _boxes(policy)
    }
    leaves |= {name: torch.zeros(2, 8, dtype=torch.uint8) for name in policy.instructions._names}
    acting, _ = policy.read(leaves)
    positive, negative = (policy.read({**leaves, ADVANTAGE: torch.full((2,), kind)})[0] for kind in (1, 2))
    assert torch.equal(acting, positive)
    assert not torch.equal(acting, negative)


def _boxes(policy):
    from gymnasium.spaces import Box

    from rlinf.data.spaces import observation_leaves

    return [(name, space) for name, space in observation_leaves(policy._spaces[0]).items() if isinstance(space, Box)]


def test_what_does_not_go_with_it_is_named(tmp_path):
    with pytest.raises(ConfigErrors) as caught:
        load("tabletop_flow", [*TINY, "policy.flow.guidance=2", "policy.flow.advantage_dropout=0.2"])
    assert {problem.key for problem in caught.value.problems} == {
        "policy.flow.guidance",
        "policy.flow.advantage_dropout",
    }
    load("tabletop_flow", [*TINY, "policy.flow.advantage=true"])
    wrong = ["policy.flow.advantage=true", "policy.flow.guidance=2", "policy.flow.advantage_dropout=0", "sft.steps=0"]
    wrong += ["sft.perturbation=0"]
    with pytest.raises(ConfigErrors) as caught:
        load("tabletop_flow", [*TINY, *wrong])
    assert {problem.key for problem in caught.value.problems} == {"policy.flow.advantage", "policy.flow.guidance"}
