"""As population-based training goes on: weights and moments of another learner, optimiser options of one's own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import learner_jobs as jobs
import pytest
from learner_cases import make_stage
from learner_gang import Gang
from test_megatron_learner import assert_same_metrics, assert_same_weights, torch_learner

from rlinf.schema.learner import MegatronConfig

pytestmark = pytest.mark.megatron

LEARNERS = {
    "fsdp": (None, 2),
    "megatron, one": (MegatronConfig(), 1),
    "megatron, tensor 2": (MegatronConfig(tensor_parallel=2), 2),
    "megatron, data 2": (MegatronConfig(), 2),
    "megatron, data 2, plain optimizer": (MegatronConfig(distributed_optimizer=False), 2),
}


@pytest.mark.slow
@pytest.mark.parametrize("critic", [pytest.param(False, marks=pytest.mark.slow), True])
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] * (name != "fsdp")) for name in LEARNERS],
)
def test_another_learning_rate(gang: Gang, tmp_path: Path, name: str, critic: bool) -> None:
    donor = replace(make_stage(critic=critic, minibatches=2), steps=10)
    options = {"lr": 4e-3, "betas": (0.8, 0.95), "weight_decay": 0.3, "eps": 1e-4}
    optimizer = replace(donor.optimizer, **options, critic_lr=3e-3 if critic else None)
    taker = replace(donor, optimizer=optimizer, minibatches=1)
    metrics, weights = jobs.taken_over(torch_learner(donor), torch_learner(taker), tmp_path / "torch")
    # Ten batches: after two of warm-up, four are left of eight, then three... whatever the number of minibatches was.
    assert [one["lr"] for one in metrics] == pytest.approx([4e-3 * 6 / 8, 4e-3 * 5 / 8])
    layout, ranks = LEARNERS[name]
    found, ends = gang.run(jobs.take_over, layout, donor, taker, tmp_path / "other", ranks=ranks)[0]
    assert_same_metrics(found, metrics, 1e-4)
    assert_same_weights(ends, weights, 1e-5)
