"""Runs with a learned reward: what it scores, what it learns from, and that nothing is lost on the way."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tiny_runs
import torch

from rlinf.config.schema.reward_model import RewardModelConfig
from rlinf.inputs import named_inputs
from rlinf.train.reward_model import LearnedReward
from rlinf.train.run import run
from rlinf.types import Batch, PolicyOutput

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
        group_ids=torch.zeros(rows, dtype=torch.int64),
        policy_version=torch.zeros(rows, 3, dtype=torch.int32),
        step_rewards=scored if steps else None,
        correct=torch.arange(rows) % 2 == 1,
    )


def learned(**options: Any) -> tuple[LearnedReward, FixedScores]:
    learner = FixedScores()
    return LearnedReward(learner, RewardModelConfig(**options), seed=0), learner  # type: ignore[arg-type]


def test_a_score_replaces_the_reward_or_is_mixed_with_it() -> None:
    sure = float(torch.tensor(2.0).sigmoid())
    scored, metrics = learned(supervision="outcome")[0].score(batch())
    assert scored.rewards.tolist() == pytest.approx([sure] * 4)
    assert metrics["reward_model/agreement"] == 0.5
    assert metrics["reward_model/gap"] == pytest.approx(sure - 0.5)
    mixed, _ = learned(supervision="outcome", output="logit", weight=0.25)[0].score(batch())
    assert mixed.rewards.tolist() == pytest.approx([0.5, 1.25, 0.5, 1.25])


def test_steps_are_scored_where_they_end() -> None:
    reward, _ = learned(supervision="process", weight=0.5, output="logit")
    scored, metrics = reward.score(batch(steps=True))
    assert scored.step_rewards is not None
    assert scored.step_rewards[0, :2].tolist() == [1.0, 1.5]
    assert bool(scored.step_rewards[:, 2].isnan().all())
    assert metrics["reward_model/label"] == 0.5
    with pytest.raises(ValueError, match="scores of steps"):
        reward.score(batch())


def test_a_tenth_of_what_is_learned_from_is_old() -> None:
    reward, learner = learned(supervision="outcome", refresh_every=1, replay_fraction=0.1, batch_rows=1000)
    reward.score(batch(90))
    first = reward.refresh(1)
    assert (first["reward_model/trained_rows"], first["reward_model/replayed_rows"]) == (90, 0)
    reward.score(batch(90, first=1000))
    second = reward.refresh(2)
    assert (second["reward_model/trained_rows"], second["reward_model/replayed_rows"]) == (100, 10)
    old = learner.trained[-1].actions[:, 0] < 1000
    assert int(old.sum()) == 10


def test_no_more_is_remembered_than_was_asked_for() -> None:
    reward, _ = learned(supervision="outcome", refresh_every=1, history_rows=50)
    for step in (1, 2, 3):
        reward.score(batch(40, first=100 * step))
        reward.refresh(step)
    assert reward._history is not None
    kept = (reward._history.actions[:, 0] // 100).unique(return_counts=True)
    assert reward._history.num_rows == 50
    assert kept[0].tolist() == [1, 2, 3]


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


@pytest.mark.parametrize("supervision", ["outcome", "process"])
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
