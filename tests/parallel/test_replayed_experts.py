"""Experts that a sampler chose, replayed by sharded learners: the torch learner's numbers, and a small gap."""

from __future__ import annotations

from typing import Any

import learner_jobs as jobs
import pytest
import torch
from learner_cases import make_stage
from learner_gang import Gang
from test_megatron_learner import assert_same_metrics, assert_same_weights
from torch import Tensor

from rlinf.schema.learner import MegatronConfig

LAYOUTS: dict[str, tuple[Any, int]] = {
    "fsdp": ("fsdp", 2),
    "one": (MegatronConfig(), 1),
    "experts 2": (MegatronConfig(expert_parallel=2), 2),
    "tensor 2": (MegatronConfig(tensor_parallel=2, sequence_parallel=True), 2),
    "context 2": (MegatronConfig(context_parallel=2), 2),
    "pipeline 2, experts 2": (MegatronConfig(pipeline_parallel=2, expert_parallel=2), 4),
}
SOON = ("experts 2",)


def logprobs(answers: list[dict[str, Any]], which: str) -> Tensor:
    rows = torch.cat([answer[which][0] for answer in answers])
    return torch.cat([answer[which][1].logprobs for answer in answers])[torch.argsort(rows)]


@pytest.mark.megatron
@pytest.mark.parametrize("name", [pytest.param(one, marks=[pytest.mark.slow] * (one not in SOON)) for one in LAYOUTS])
def test_replayed_experts_are_those_of_the_torch_learner(gang: Gang, name: str) -> None:
    stage = make_stage()
    layout, ranks = LAYOUTS[name]
    wanted = jobs.replay_experts("torch", stage)
    answers = gang.run(jobs.replay_experts, layout, stage, ranks=ranks)
    for which in ("with", "without"):
        torch.testing.assert_close(logprobs(answers, which), logprobs([wanted], which), atol=1e-4, rtol=0)
    for answer in answers:
        assert_same_metrics([answer["metrics"]], [wanted["metrics"]], 1e-4)
    # The routers too, whose gradient comes through the weights of replayed experts.
    assert_same_weights(answers[0]["weights"], wanted["weights"], 1e-5)


def test_a_perturbed_router_has_a_tenth_of_the_gap_with_replay() -> None:
    true = jobs.policy_of(jobs.perturbed_moe(0.0))
    batch, found = jobs.moe_batch(), jobs.replay_experts("torch", make_stage())
    with torch.no_grad():
        sampled = true.evaluate(batch.inputs, batch.actions, batch.mask, with_entropy=False).logprobs
    gaps = {
        which: float((logprobs([found], which) - sampled).abs()[batch.mask].mean()) for which in ("with", "without")
    }
    assert gaps["without"] > 0.05
    assert gaps["with"] < gaps["without"] / 10, gaps
