"""Runs with a learned reward: what it scores, what it learns from, and that nothing is lost on the way."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tiny_runs
import torch

from rlinf.data.batch import Batch
from rlinf.data.columns import RewardDetails
from rlinf.data.inputs import TextInputs, named_inputs
from rlinf.data.messages import PolicyOutput
from rlinf.schema.reward_model import RewardModelConfig
from rlinf.train.reward_model import LearnedReward
from rlinf.train.run import run

LEARNED = {"supervision": "outcome", "fit_batches": 2, "refresh_every": 2, "batch_rows": 8, "lr": 1e-2}
STEPS = {"scorer": "arithmetic"}


class FixedScores:
    """A learner that scores by a rule and remembers what it was trained on."""

    def __init__(self) -> None:
        self.trained: list[Batch] = []

    def evaluate(self, batch: Batch) -> PolicyOutput:
        return PolicyOutput(batch.rollout_logprobs, values=torch.where(batch.mask, 2.0, 0.0))

    def update(self, batch: Batch, *, step: int) -> dict[str, float]:
        self.trained.append(batch)
        return {}


class NoRollout:
    """No policy answers."""


class Answers:
    """A policy that gives the same answers for every training of the reward model."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, int]] = []

    def collect(self, step: int, *, round: int = 0) -> tuple[Batch, dict[str, float]]:
        self.calls.append((step, round))
        return batch(8, first=5000 + 100 * step), {}


def batch(rows: int = 4, steps: bool = False, first: int = 0) -> Batch:
    mask = torch.tensor([[True, True, False]]).expand(rows, 3)
    scored = torch.full((rows, 3), torch.nan)
    scored[:, 0], scored[:, 1] = 0.0, 1.0
    return Batch(
        inputs=named_inputs(
            {
                "prompt_ids": torch.full((rows, 2), 5),
                "prompt_lengths": torch.full((rows,), 2),
                "response_lengths": torch.full((rows,), 2),
            }
        ),
        actions=torch.arange(first, first + rows)[:, None].expand(rows, 3),
        mask=mask,
        rollout_logprobs=torch.zeros(rows, 3),
        rewards=torch.arange(rows) % 2 * 1.0,
        group_ids=torch.arange(rows) // 2,
        policy_version=torch.zeros(rows, 3, dtype=torch.int32),
        reward_details=RewardDetails(step_rewards=scored if steps else None, correct=torch.arange(rows) % 2 == 1),
    )


def learned(**options: Any) -> tuple[LearnedReward, FixedScores]:
    learner = FixedScores()
    return LearnedReward(learner, RewardModelConfig(**options), seed=0), learner  # type: ignore[arg-type]


def test_a_score_replaces_the_reward_or_is_mixed_with_it() -> None:
    sure = float(torch.tensor(2.0).sigmoid())
    scored, metrics = learned(supervision="outcome")[0].score(batch(), 0)
    assert scored.rewards.tolist() == pytest.approx([sure] * 4)
    assert metrics["reward_model/agreement"] == 0.5
    assert metrics["reward_model/gap"] == pytest.approx(sure - 0.5)
    mixed, _ = learned(supervision="outcome", output="logit", weight=0.25)[0].score(batch(), 0)
    assert mixed.rewards.tolist() == pytest.approx([0.5, 1.25, 0.5, 1.25])


def test_a_group_is_trained_on_at_once_where_it_has_more_rows_than_a_batch() -> None:
    """Eight rows of four groups: with one row a batch there are as many batches as groups, and none is empty."""
    reward, learner = learned(supervision="outcome", batch_rows=1, refresh_every=1)
    reward.score(batch(8), 0)
    reward.train(0)
    assert [part.num_rows for part in learner.trained] == [2, 2, 2, 2]


def test_steps_are_scored_where_they_end() -> None:
    reward, _ = learned(supervision="process", weight=0.5, output="logit")
    scored, metrics = reward.score(batch(steps=True), 0)
    step_rewards = scored.reward_details.step_rewards
    assert step_rewards is not None
    assert step_rewards[0, :2].tolist() == [1.0, 1.5]
    assert bool(step_rewards[:, 2].isnan().all())
    assert metrics["reward_model/label"] == 0.5
    with pytest.raises(ValueError, match="scores of steps"):
        reward.score(batch(), 0)


def test_a_tenth_of_what_is_learned_from_is_old() -> None:
    reward, learner = learned(supervision="outcome", refresh_every=1, replay_fraction=0.1, batch_rows=1000)
    reward.score(batch(90), 0)
    first = reward.refresh(1, NoRollout())
    assert (first["reward_model/trained_rows"], first["reward_model/replayed_rows"]) == (90, 0)
    reward.score(batch(90, first=1000), 1)
    second = reward.refresh(2, NoRollout())
    assert (second["reward_model/trained_rows"], second["reward_model/replayed_rows"]) == (100, 10)
    old = learner.trained[-1].actions[:, 0] < 1000
    assert int(old.sum()) == 10


def test_no_more_is_remembered_than_configured() -> None:
    reward, _ = learned(supervision="outcome", refresh_every=1, history_rows=50)
    for step in (1, 2, 3):
        reward.score(batch(40, first=100 * step), step)
        reward.refresh(step, NoRollout())
    assert reward._history is not None
    kept = (reward._history.actions[:, 0] // 100).unique(return_counts=True)
    assert reward._history.num_rows == 50
    assert kept[0].tolist() == [1, 2, 3]


def test_a_refresh_collects_answers_of_the_latest_policy() -> None:
    reward, learner = learned(supervision="outcome", refresh_every=1, fresh_batches=2, batch_rows=1000)
    policy = Answers()
    reward.score(batch(90), 0)
    assert reward.refresh(1, policy)["reward_model/trained_rows"] == 106  # type: ignore[arg-type]
    assert policy.calls == [(1, -1), (1, -2)]
    assert learner.trained[-1].group_ids.unique().numel() == 45 + 4 + 4


def test_a_share_smaller_than_a_group_replays_nothing() -> None:
    reward, _ = learned(supervision="outcome", refresh_every=1, replay_fraction=0.1)
    for step in (1, 2):
        reward.score(batch(4, first=100 * step), step)
        found = reward.refresh(step, NoRollout())  # type: ignore[arg-type]
        assert (found["reward_model/trained_rows"], found["reward_model/replayed_rows"]) == (4, 0)


def test_of_two_answers_the_better_one_is_moved_up() -> None:
    reward, learner = learned(supervision="outcome", learn_from="pairs", refresh_every=1, batch_rows=1000)
    _, metrics = reward.score(batch(), 0)
    assert metrics["reward_model/pairs_in_order"] == 0.5  # all scores are the same
    reward.refresh(1, NoRollout())  # type: ignore[arg-type]
    (rows,) = learner.trained
    assert rows.advantages is not None
    # one pair in each of two groups: sigmoid(0) each way, four rows for two pairs
    assert rows.advantages[rows.mask].tolist() == pytest.approx([-1.0, 1.0, -1.0, 1.0])
    assert rows.advantages[~rows.mask].eq(0).all()
    assert TextInputs.of(rows.inputs).labels is None


def test_a_graded_reward_is_learned_as_it_is_and_refused_outside_its_scale() -> None:
    reward, learner = learned(supervision="outcome", learn_from="scores", refresh_every=1, batch_rows=1000)
    reward.score(batch().replace(rewards=torch.tensor([0.25, 0.5, 1.0, 0.0])), 0)
    reward.refresh(1, NoRollout())  # type: ignore[arg-type]
    labels = TextInputs.of(learner.trained[-1].inputs).labels
    assert labels is not None
    assert labels[learner.trained[-1].mask].tolist() == [0.25, 0.5, 1.0, 0.0]
    with pytest.raises(ValueError, match=r"between 0 and 1, and there is one of 3"):
        reward.score(batch().replace(rewards=torch.full((4,), 3.0)), 0)


def test_verified_groups_keep_the_verdict() -> None:
    reward, _ = learned(supervision="outcome", verified_fraction=0.25)
    given = batch(16)
    scored, _ = reward.score(given, 3)
    kept = (scored.rewards == given.rewards).reshape(8, 2).all(dim=1)
    assert int(kept.sum()) == 2
    again, _ = reward.score(given, 4)
    assert not again.rewards.equal(scored.rewards)


def sections(supervision: str) -> dict[str, Any]:
    algorithm = {"adv_type": "grpo_process" if supervision == "process" else "grpo", "kl_beta": 0.01}
    found = {"algorithm": {**algorithm, "ref_update_every": 2}, "reward_model": {**LEARNED, "supervision": supervision}}
    if supervision == "process":
        kwargs = tiny_runs.mapping(Path("x"))["env"]["kwargs"]
        found["env"] = {"kwargs": {**kwargs, "steps": STEPS}}
    return found


def finished(folder: Path, steps: int, supervision: str = "outcome", **more: Any) -> tuple[str, list[dict[str, Any]]]:
    config = tiny_runs.config(folder, run={"max_steps": steps}, **sections(supervision), **more)
    run(config, report=False)
    return json.loads((folder / "summary.json").read_text())["params_sha256"], tiny_runs.logged(folder)


@pytest.mark.slow
@pytest.mark.parametrize("supervision", [pytest.param("outcome", marks=pytest.mark.slow), "process"])
def test_a_resumed_run_is_the_one_that_went_straight_on(tmp_path: Path, supervision: str) -> None:
    straight, lines = finished(tmp_path / "straight", 4, supervision)
    finished(tmp_path / "resumed", 3, supervision)
    resumed, again = finished(tmp_path / "resumed", 4, supervision)
    assert resumed == straight
    timeless = [{n: v for n, v in line.items() if n.startswith("reward_model/")} for line in lines]
    assert timeless == [{n: v for n, v in line.items() if n.startswith("reward_model/")} for line in again]
    assert lines[0]["reward_model/trained_rows"] == 32
    assert lines[0]["reward_model/after/loss"] < lines[0]["reward_model/before/loss"]
    # two batches of 16 since the first fit, and a tenth of the whole from before
    assert lines[2]["reward_model/replayed_rows"] == 4
    assert "reward_model/replayed_rows" not in lines[3]


@pytest.mark.slow
@pytest.mark.usefixtures("ray_session")
def test_ray_gives_what_one_process_gives(tmp_path: Path) -> None:
    here, _ = finished(tmp_path / "here", 2)
    there, _ = finished(tmp_path / "there", 2, cluster={"backend": "ray"})
    assert there == here
