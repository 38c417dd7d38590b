"""Policies with towers, split over two ranks by FSDP: metrics, weights and exports are those of one rank."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import tower_jobs as jobs
from learner_gang import Gang

from rlinf.learners.offload import STAY
from rlinf.schema.learner import OffloadConfig


@pytest.mark.parametrize(
    ("flow_steps", "dtype", "offload", "tolerance"),
    [
        pytest.param(0, "float32", STAY, 1e-6, marks=pytest.mark.slow),
        (2, "float32", OffloadConfig(optimizer=True, weights=True), 1e-6),
        pytest.param(0, "bfloat16", STAY, 5e-3, marks=pytest.mark.slow),
    ],
)
def test_two_ranks_are_one(gang: Gang, flow_steps: int, dtype: str, offload: OffloadConfig, tolerance: float) -> None:
    metrics, weights = jobs.train_on_one(flow_steps, dtype)
    answers = gang.run(jobs.train_split, flow_steps, dtype, offload, ranks=2)
    for found, _, _ in answers:
        for mine, theirs in zip(found, metrics, strict=True):
            assert mine == pytest.approx(theirs, rel=10 * tolerance, abs=10 * tolerance)
    split, exported = answers[0][1:]
    assert split.keys() == weights.keys() == exported.keys()
    for name, tensor in weights.items():
        if name.endswith("normalizer.count"):  # each rank has seen every row: the same statistics, counted twice
            continue
        torch.testing.assert_close(split[name], tensor, atol=tolerance, rtol=0, msg=name)
        assert torch.equal(exported[name], split[name]), name
    assert not any(len(answer[1]) for answer in answers[1:])


@pytest.mark.slow
def test_a_checkpoint_continues_exactly(gang: Gang, tmp_path: Path) -> None:
    for straight, resumed in gang.run(jobs.save_and_continue, tmp_path, ranks=2):
        assert all(torch.equal(tensor, resumed[name]) for name, tensor in straight.items())
