"""Mixture-of-experts models: the torch learner's numbers with experts over several ranks, there and back again."""

from __future__ import annotations

from pathlib import Path

import learner_jobs as jobs
import pytest
import torch
from learner_cases import make_stage, tiny_model
from learner_gang import Gang
from test_megatron_learner import assert_same_metrics, assert_same_weights, expected

from rlinf.models.checkpoint_names import by_expert
from rlinf.schema.learner import MegatronConfig

pytestmark = pytest.mark.megatron
FAMILY = "qwen3_moe"
LAYOUTS = {
    "one": (MegatronConfig(), 1),
    "experts 2": (MegatronConfig(expert_parallel=2), 2),
    "tensor 2": (MegatronConfig(tensor_parallel=2, sequence_parallel=True), 2),
    "tensor 2, experts 2": (MegatronConfig(tensor_parallel=2, sequence_parallel=True, expert_parallel=2), 2),
    "tensor 2, data 2, experts 2": (MegatronConfig(tensor_parallel=2, sequence_parallel=True, expert_parallel=2), 4),
    "tensor 2, data 2, experts 4": (MegatronConfig(tensor_parallel=2, sequence_parallel=True, expert_parallel=4), 4),
    "pipeline 2, experts 2": (MegatronConfig(pipeline_parallel=2, expert_parallel=2, recompute="full"), 4),
    "context 2, experts 4": (MegatronConfig(context_parallel=2, expert_parallel=4), 4),
    "experts 2, plain optimizer": (MegatronConfig(expert_parallel=2, distributed_optimizer=False), 4),
}
every_layout = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name not in ("one", "experts 2"))) for name in LAYOUTS]
)


@every_layout
def test_log_probabilities_and_updates_are_those_of_the_torch_learner(gang: Gang, name: str) -> None:
    """Four optimiser steps with a reference policy; the model behind the torch learner is transformers' own."""
    layout, ranks = LAYOUTS[name]
    stage = make_stage(minibatches=2, reference=True)
    (rows, output), metrics, weights = expected(stage, 2, FAMILY)
    answers = gang.run(jobs.evaluate_and_train, layout, stage, 2, FAMILY, ranks=ranks)
    order = torch.argsort(torch.cat([answer[0][0] for answer in answers]))
    for column in ("logprobs", "entropy"):
        found = torch.cat([getattr(answer[0][1], column) for answer in answers])[order]
        torch.testing.assert_close(found, getattr(output, column)[torch.argsort(rows)], atol=1e-4, rtol=0)
    for answer in answers:
        assert_same_metrics(answer[1], metrics, 1e-4)
        assert answer[1][0]["expert_load_max"] > 1
    assert_same_weights(answers[0][2], weights, 1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["experts 2", pytest.param("tensor 2, data 2, experts 4", marks=pytest.mark.slow)])
def test_ranks_that_have_their_own_rows_alone_learn_the_same(gang: Gang, name: str) -> None:
    """All run as many micro-batches as the rank that has most, whose number each rank has alone."""
    layout, ranks = LAYOUTS[name]
    stage = make_stage(epochs=2, minibatches=3)
    for metrics, weights in gang.run(jobs.train_on_own_rows, layout, stage, FAMILY, ranks=ranks):
        assert metrics[0] == metrics[1]
        assert all(torch.equal(tensor, weights[1][name]) for name, tensor in weights[0].items())


@pytest.mark.parametrize(
    "name", ["experts 2", *(pytest.param(name, marks=pytest.mark.slow) for name in ("tensor 2, experts 2", "tensor 2"))]
)
def test_weights_come_back_as_they_went_in(gang: Gang, name: str) -> None:
    layout, ranks = LAYOUTS[name]
    found = gang.run(jobs.round_trip, layout, FAMILY, False, ranks=ranks)[0]
    wanted = dict(by_expert(tiny_model(FAMILY, tied=False).named_parameters()))
    assert found.keys() == wanted.keys()
    assert all(torch.equal(found[key], wanted[key]) for key in wanted)


@pytest.mark.parametrize(
    ("saved", "loaded"),
    [
        pytest.param("experts 2", "experts 2", marks=pytest.mark.slow),
        pytest.param("experts 2", "one", marks=pytest.mark.slow),
        pytest.param("one", "experts 2", marks=pytest.mark.slow),
        pytest.param("tensor 2, experts 2", "tensor 2", marks=pytest.mark.slow),
        pytest.param("tensor 2, data 2, experts 4", "pipeline 2, experts 2", marks=pytest.mark.slow),
    ],
)
def test_a_checkpoint_continues_at_another_layout(gang: Gang, tmp_path: Path, saved: str, loaded: str) -> None:
    stage = make_stage()
    layout, ranks = LAYOUTS[saved]
    metrics, weights = gang.run(jobs.save_then_continue, layout, stage, tmp_path, 2, FAMILY, ranks=ranks)[0]
    layout, ranks = LAYOUTS[loaded]
    found, ends = gang.run(jobs.load_and_continue, layout, stage, tmp_path, FAMILY, ranks=ranks)[0]
    assert_same_metrics(found, metrics, 0.0 if saved == loaded else 1e-4)
    assert_same_weights(ends, weights, 0.0 if saved == loaded else 1e-4)


@pytest.mark.slow
def test_balancing_does_not_depend_on_the_layout(gang: Gang) -> None:
    """It changes the weights, alike over one rank and two, and has nothing to go by in the first step.

    Two steps: from the third on, rounding can send a token whose two experts are nearly level to the other one.
    """
    stage = make_stage()
    _, plain, _ = expected(stage, 2, FAMILY)
    found = []
    for experts in (1, 2):
        layout = MegatronConfig(expert_parallel=experts, load_balance_coef=1.0)
        found.append(gang.run(jobs.evaluate_and_train, layout, stage, 2, FAMILY, ranks=experts)[0])
    assert_same_metrics(found[0][1], found[1][1], 1e-4)
    norms = [[metrics["grad_norm"] for metrics in run] for run in (found[0][1], plain)]
    assert norms[0][0] == pytest.approx(norms[1][0], rel=1e-4)
    assert norms[0][1] != pytest.approx(norms[1][1], rel=1e-3)


def test_an_export_is_what_transformers_loads(gang: Gang, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    layout, ranks = LAYOUTS["tensor 2, experts 2"]
    gang.run(jobs.export, layout, tmp_path, FAMILY, ranks=ranks)
    found = AutoModelForCausalLM.from_pretrained(tmp_path).state_dict()
    wanted = tiny_model(FAMILY).state_dict()
    assert found.keys() == wanted.keys()
    assert all(torch.equal(found[key], wanted[key]) for key in wanted)


def test_one_product_for_all_experts_is_the_same(gang: Gang) -> None:
    """What GPUs compute, here in float32: outputs and gradients against one expert after another."""
    (one_by_one, together), gradients = gang.run(jobs.grouped_experts, ranks=1)[0]
    torch.testing.assert_close(together, one_by_one, atol=1e-5, rtol=1e-5)
    for one, other in gradients:
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)
