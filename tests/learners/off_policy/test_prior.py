"""Recorded transitions in every update (RLPD), as in the paper."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transitions import fragment, soft_actor_critic

from rlinf.base.random_streams import torch_generator
from rlinf.cli import main
from rlinf.config import load
from rlinf.config.problems import ConfigErrors
from rlinf.datasets.robot_data.dataset import RobotDataset
from rlinf.datasets.robot_data.decisions import chunk_frames, transitions_batch
from rlinf.datasets.robot_data.reading import read_dataset
from rlinf.learners.off_policy.learner import OffPolicyLearner
from rlinf.learners.off_policy.prior import PriorTransitions
from rlinf.models.off_policy.layers import CriticEnsemble, body
from rlinf.schema import AlgorithmConfig, OptimizerConfig
from rlinf.train.run import run

RECIPE = Path(__file__).parents[3] / "config" / "sim" / "reach_sac.yaml"
QUIET = ["cluster.backend=local", "logging.progress=none", "logging.tensorboard=false"]


def recorded(*, terminated: bool = False, finals: bool = False) -> RobotDataset:
    """Two episodes of 3 and 2 frames whose observations count frames."""
    done = np.array([False, False, True, False, True])
    columns = {
        "observation.state": np.arange(5, dtype=np.float32)[:, None],
        "action": np.zeros((5, 2), np.float32),
        "next.reward": np.array([1, 2, 4, 8, 16], np.float32),
        "next.done": done,
        "next.terminated": done & terminated,
    }
    after = {"observation": np.array([[30.0], [50.0]], np.float32)} if finals else {}
    return RobotDataset(Path("set"), columns, np.array([3, 2]), [""], np.zeros(5, np.int64), 10, {}, after)


def test_transitions_end_where_episodes_do() -> None:
    for terminated, finals, mask in (
        (False, False, [1, 1, 0, 1, 0]),
        (True, False, [1, 1, 1, 1, 1]),
        (False, True, [1, 1, 1, 1, 1]),
    ):
        found = recorded(terminated=terminated, finals=finals)
        seen = {"observation": found.columns["observation.state"]}
        batch = transitions_batch(found, seen, dict(found.finals), found.columns["action"], 1)
        assert batch.mask[0].tolist() == [bool(part) for part in mask]
        following = batch.inputs.next_observations["observation"][0, :, 0].tolist()
        assert [following[at] for at in (0, 1, 3)] == [1, 2, 4]
        if finals:
            assert [following[at] for at in (2, 4)] == [30, 50]
        assert batch.terminated is not None
        assert batch.terminated[0].tolist() == (found.columns["next.done"] & terminated).tolist()
    chunked = transitions_batch(recorded(terminated=True), seen, {}, np.zeros((3, 4), np.float32), 2)
    assert chunk_frames(recorded(), 2).tolist() == [[0, 1], [2, 2], [3, 4]]
    assert chunked.rewards[0].tolist() == [3, 4, 24]


@pytest.mark.parametrize(
    ("columns", "terminal"),
    [
        ({"next.done": "AB", "next.terminated": "A", "next.truncated": "B"}, "A"),
        ({"next.done": "AB", "next.truncated": "B", "next.success": "A"}, "A"),
        ({"next.done": "AB", "next.success": "B"}, "B"),
        ({"next.success": "A"}, "A"),
        ({"next.truncated": "A"}, "B"),
        ({"next.done": "A"}, "A"),
        ({}, ""),
    ],
)
def test_a_time_limit_is_no_terminal_state(columns: dict[str, str], terminal: str) -> None:
    """Ends A and B of two episodes, by the values of each column."""
    found = recorded()
    ends = {"A": 2, "B": 4}
    kept = {name: values for name, values in found.columns.items() if name not in ("next.done", "next.terminated")}
    for name, where in columns.items():
        kept[name] = np.isin(np.arange(5), [ends[letter] for letter in where])
    found = replace(found, columns=kept)
    seen = {"observation": kept["observation.state"]}
    batch = transitions_batch(found, seen, {}, kept["action"], 1)
    assert batch.terminated is not None
    assert np.flatnonzero(batch.terminated[0]).tolist() == [ends[letter] for letter in terminal]
    # Without the observation after it a time limit has nothing to bootstrap from.
    assert np.flatnonzero(~batch.mask[0]).tolist() == [ends[letter] for letter in "AB" if letter not in terminal]


def make(prior: PriorTransitions | None = None, **options: Any) -> OffPolicyLearner:
    algorithm = AlgorithmConfig(loss_type="sac", replay_start=0, replay_batch_size=8, gamma=0.9, **options)
    return OffPolicyLearner(soft_actor_critic(), algorithm, OptimizerConfig(lr=1e-2), seed=3, prior=prior)


def test_a_share_of_every_update_is_recorded() -> None:
    """Recorded rewards are 100, the run's own 0: of each update's 8 transitions, 3 are recorded, and stand behind."""
    batch = fragment()
    own, old = (batch.replace(rewards=torch.full_like(batch.rewards, value)) for value in (0.0, 100.0))
    flat = old.decisions_as_rows()
    row = old.select([0])
    assert flat.num_rows
    learner = make(PriorTransitions(row, AlgorithmConfig(gamma=0.9), 3), replay_ratio=0.1)
    learner.replay.add(own)
    for sampled, noise in learner._samples(2, torch_generator(0, "x")):
        assert sampled.rewards.tolist() == [0.0] * 5 + [100.0] * 3
        assert sampled.inputs["observation"].shape[0] == noise.shape[1] == 8
    assert learner.update(own, step=0)["updates"] >= 1


def test_critics_with_layer_norm_are_bounded_by_their_last_layer() -> None:
    """What the paper takes it for: the norm of the weights bounds the values far away from all data."""
    torch.manual_seed(0)
    plain, normed = (
        CriticEnsemble(5, (16, 16), "relu", layers=partial(body, layer_norm=norm)) for norm in (False, True)
    )
    far = torch.full((1, 3), 1e6), torch.full((1, 2), 1e6)
    last = [critic[-1] for critic in normed.critics]  # type: ignore[index]
    bound = max(float(layer.weight.detach().norm() * 4 + layer.bias.detach().abs()) for layer in last)
    assert float(normed(*far).abs().max()) <= bound
    assert float(plain(*far).abs().max()) > 1e3 * bound


def test_a_run_learns_from_a_recorded_folder_and_resumes_bit_for_bit(tmp_path: Path) -> None:
    data = tmp_path / "reach"
    assert main(["record", str(RECIPE), "--out", str(data), "--episodes", "3", "--to-the-end"]) == 0
    assert read_dataset(data).lengths.tolist() == [25, 25, 25]
    assert read_dataset(data).columns["next.reward"].max() == 0.0
    keys = [*QUIET, f"algorithm.prior_data={data}", "policy.critic_layer_norm=true", "algorithm.replay_start=50"]
    keys += ["rollout.num_steps=30", "evaluation.size=2", "algorithm.replay_batch_size=8", "policy.hidden_sizes=[8]"]
    sums = []
    for name, steps in (("straight", (3,)), ("resumed", (1, 3))):
        for last in steps:
            chosen = [f"run.dir={tmp_path / name}", f"run.max_steps={last}", "checkpoint.every=1"]
            done = run(load(RECIPE, [*keys, *chosen]), report=False)
        sums.append((done.run_dir / "summary.json").read_text().split('"params_sha256": "')[1][:64])
    assert sums[0] == sums[1]
    assert (tmp_path / "straight" / "policy" / "dataset_statistics.json").exists()


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("algorithm.prior_share=0.3", "is not read without algorithm.prior_data"),
        ("algorithm.prior_data=nowhere/at/all", "does not exist"),
    ],
)
def test_what_cannot_be_meant_is_refused(key: str, words: str) -> None:
    with pytest.raises(ConfigErrors, match=words):
        load(RECIPE, [key])


def test_shares_that_leave_nothing_are_refused(tmp_path: Path) -> None:
    keys = [f"algorithm.prior_data={tmp_path}", "algorithm.prior_share=0.001"]
    with pytest.raises(ConfigErrors, match="is none of them, or all"):
        load(RECIPE, keys)
    with pytest.raises(ConfigErrors, match="have no priorities"):
        load(RECIPE, [keys[0], "algorithm.priority_exponent=0.6"])
