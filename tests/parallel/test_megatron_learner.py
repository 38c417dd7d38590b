"""The megatron learner gives the torch learner's numbers at every layout, and its checkpoints move between layouts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import learner_jobs as jobs
import pytest
import torch
from learner_cases import MICRO_BATCH_TOKENS, make_batch, make_stage, policy_of, tiny_model
from learner_gang import Gang
from torch import Tensor

from rlinf.data.messages import Metrics
from rlinf.learners.stage import Stage
from rlinf.learners.torch import TorchLearner
from rlinf.schema.learner import MegatronConfig

pytestmark = pytest.mark.megatron

TENSOR = MegatronConfig(tensor_parallel=2)
SEQUENCE = MegatronConfig(tensor_parallel=2, sequence_parallel=True)
PIPELINE = MegatronConfig(pipeline_parallel=2)
INTERLEAVED = MegatronConfig(pipeline_parallel=2, virtual_pipeline=2)
DATA = MegatronConfig()
BOTH = MegatronConfig(tensor_parallel=2, pipeline_parallel=2, sequence_parallel=True)

LAYOUTS = {
    "one": (DATA, 1),
    "tensor 2": (TENSOR, 2),
    "tensor 2, sequence, recompute": (
        MegatronConfig(tensor_parallel=2, sequence_parallel=True, recompute="full"),
        2,
    ),
    "pipeline 2": (PIPELINE, 2),
    "pipeline 2 x 2": (INTERLEAVED, 2),
    "data 2": (DATA, 2),
    "data 2, plain optimizer": (MegatronConfig(distributed_optimizer=False), 2),
    "context 2": (MegatronConfig(context_parallel=2), 2),
    "tensor 2, pipeline 2": (BOTH, 4),
    "tensor 2, data 2": (TENSOR, 4),
    "pipeline 2, data 2, recompute": (MegatronConfig(pipeline_parallel=2, recompute="selective"), 4),
    "pipeline 3": (MegatronConfig(pipeline_parallel=3), 3),
    "context 4": (MegatronConfig(context_parallel=4), 4),
    "tensor 2, context 2": (MegatronConfig(tensor_parallel=2, context_parallel=2, sequence_parallel=True), 4),
    "pipeline 2, context 2": (MegatronConfig(pipeline_parallel=2, context_parallel=2, recompute="full"), 4),
}


def layouts(*soon: str) -> pytest.MarkDecorator:
    """Every layout, of which those named run with every commit."""
    return pytest.mark.parametrize(
        "name", [pytest.param(name, marks=[pytest.mark.slow] * (name not in soon)) for name in LAYOUTS]
    )


# With every commit one step in each layout of two processes; at night four processes, and all the rest in each layout.
OF_TWO = tuple(name for name, (_, ranks) in LAYOUTS.items() if ranks <= 2)


def torch_learner(stage: Stage, family: str = "qwen2") -> TorchLearner:
    policy = policy_of(tiny_model(family), value_head="values" in stage.objective.needs)
    return TorchLearner(policy, stages=(stage,), seed=5, micro_batch_tokens=MICRO_BATCH_TOKENS)


def expected(stage: Stage, steps: int, family: str) -> tuple[Any, list[Metrics], dict[str, Tensor]]:
    learner, batch = torch_learner(stage, family), make_batch()
    with torch.no_grad():  # of the policy itself: the torch learner leaves out the entropy if it is not read
        evaluated = torch.arange(batch.num_rows), learner.policy.evaluate(batch.inputs, batch.actions, batch.mask)
    metrics = [jobs.take_step(learner, step) for step in range(steps)]
    return evaluated, metrics, dict(learner.weights(version=1).tensors)


def assert_same_metrics(found: list[Metrics], wanted: list[Metrics], tolerance: float) -> None:
    assert len(found) == len(wanted)
    for here, there in zip(found, wanted, strict=True):
        # Figures of experts are megatron's alone, the size of an update is torch's and fsdp's.
        mine, other = (
            {k: v for k, v in each.items() if not k.startswith("expert_") and k != "update_ratio"}
            for each in (here, there)
        )
        assert mine == pytest.approx(other, rel=tolerance, abs=tolerance)


def assert_same_weights(found: dict[str, Tensor], wanted: dict[str, Tensor], tolerance: float) -> None:
    assert {name.removeprefix("model.") for name in found} == {name.removeprefix("model.") for name in wanted}
    worst = {name: float((found[name] - wanted[name]).abs().max()) for name in wanted}
    assert max(worst.values()) <= tolerance, max(worst.items(), key=lambda item: item[1])


@layouts("one", "tensor 2", "pipeline 2 x 2")
@pytest.mark.parametrize(("family", "tied"), [("qwen2", True), ("qwen3", False), ("llama", True), ("llama", False)])
def test_weights_come_back_as_they_went_in(gang: Gang, name: str, family: str, tied: bool) -> None:
    layout, ranks = LAYOUTS[name]
    found, *others = gang.run(jobs.round_trip, layout, family, tied, ranks=ranks)
    wanted = dict(tiny_model(family, tied=tied).named_parameters())
    assert found.keys() == wanted.keys()
    assert all(torch.equal(found[key], wanted[key]) for key in wanted)
    assert not any(others)


@layouts("tensor 2", "pipeline 2 x 2")
def test_logits_are_those_of_transformers(gang: Gang, name: str) -> None:
    layout, ranks = LAYOUTS[name]
    for family, tied in (("qwen2", True), ("qwen3", False), ("llama", False)):
        found = gang.run(jobs.first_logits, layout, family, tied, ranks=ranks)[-1]
        model, batch = tiny_model(family, tied=tied), make_batch()
        for (_, logits), rows in zip(found, ([0, 1], [5]), strict=True):
            part = batch.select(rows)
            prompt = int(part.inputs.prompt_lengths[0])
            start = prompt
            for row, length in enumerate(part.inputs.response_lengths.tolist()):
                ids = torch.cat([part.inputs.prompt_ids[row, :prompt], part.actions[row, : length - 1]])
                with torch.no_grad():
                    wanted = model(input_ids=ids[None]).logits[0]
                torch.testing.assert_close(logits[:prompt], wanted[:prompt], atol=1e-4, rtol=0)
                torch.testing.assert_close(logits[start : start + length - 1], wanted[prompt:], atol=1e-4, rtol=0)
                start += length - 1


@layouts(*OF_TWO)
def test_one_step_is_that_of_the_torch_learner(gang: Gang, name: str) -> None:
    """Log-probabilities, entropy, loss, gradient norm, and the weights after one step."""
    layout, ranks = LAYOUTS[name]
    stage = make_stage()
    (rows, output), metrics, weights = expected(stage, 1, "qwen2")
    answers = gang.run(jobs.evaluate_and_train, layout, stage, 1, "qwen2", ranks=ranks)
    order = torch.argsort(torch.cat([answer[0][0] for answer in answers]))
    for column in ("logprobs", "entropy"):
        found = torch.cat([getattr(answer[0][1], column) for answer in answers])[order]
        torch.testing.assert_close(found, getattr(output, column)[torch.argsort(rows)], atol=1e-4, rtol=0)
    for answer in answers:
        assert_same_metrics(answer[1], metrics, 1e-4)
    assert_same_weights(answers[0][2], weights, 1e-5)


@layouts("pipeline 2 x 2")
@pytest.mark.parametrize("family", ["qwen2", pytest.param("qwen3", marks=pytest.mark.slow)])
def test_three_updates_give_the_same_metrics(gang: Gang, name: str, family: str) -> None:
    """Two minibatches each, with a reference policy: six optimiser steps in all."""
    layout, ranks = LAYOUTS[name]
    stage = make_stage(minibatches=2, reference=True)
    _, metrics, weights = expected(stage, 3, family)
    answers = gang.run(jobs.evaluate_and_train, layout, stage, 3, family, ranks=ranks)
    for answer in answers:
        assert_same_metrics(answer[1], metrics, 1e-4)
    assert_same_weights(answers[0][2], weights, 1e-4)


@pytest.mark.slow
@layouts("data 2", "pipeline 2 x 2")
def test_ranks_that_have_their_own_rows_alone_learn_the_same(gang: Gang, name: str) -> None:
    layout, ranks = LAYOUTS[name]
    stage = make_stage(epochs=2, minibatches=3)
    for metrics, weights in gang.run(jobs.train_on_own_rows, layout, stage, "qwen2", ranks=ranks):
        assert metrics[0] == metrics[1]
        assert all(torch.equal(tensor, weights[1][name]) for name, tensor in weights[0].items())


@layouts("tensor 2", "pipeline 2")
def test_a_critic_learns_the_same(gang: Gang, name: str) -> None:
    """Values from the last stage, with a learning rate of their own."""
    layout, ranks = LAYOUTS[name]
    stage = make_stage(critic=True)
    _, metrics, weights = expected(stage, 3, "qwen2")
    answers = gang.run(jobs.evaluate_and_train, layout, stage, 3, "qwen2", ranks=ranks)
    assert metrics[2]["value_loss"] < metrics[0]["value_loss"] * 2
    for answer in answers:
        assert_same_metrics(answer[1], metrics, 1e-4)
        # Of ranks that return no rows too: the driver has no values unless all ranks have.
        assert answer[0][1].values is not None
    assert_same_weights(answers[0][2], weights, 1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("saved", "loaded"),
    [
        ("tensor 2", "one"),
        pytest.param("pipeline 2", "tensor 2", marks=pytest.mark.slow),
        pytest.param("one", "data 2", marks=pytest.mark.slow),
        pytest.param("tensor 2", "tensor 2", marks=pytest.mark.slow),
        pytest.param("one", "tensor 2", marks=pytest.mark.slow),
        pytest.param("pipeline 2", "one", marks=pytest.mark.slow),
        pytest.param("context 2", "tensor 2", marks=pytest.mark.slow),
        pytest.param("data 2", "one", marks=pytest.mark.slow),
        pytest.param("tensor 2, pipeline 2", "tensor 2, data 2", marks=pytest.mark.slow),
        pytest.param("pipeline 2", "pipeline 2 x 2", marks=pytest.mark.slow),
    ],
)
def test_a_checkpoint_continues_at_another_layout(gang: Gang, tmp_path: Path, saved: str, loaded: str) -> None:
    stage = make_stage(reference=True)
    layout, ranks = LAYOUTS[saved]
    metrics, weights = gang.run(jobs.save_then_continue, layout, stage, tmp_path, 2, ranks=ranks)[0]
    layout, ranks = LAYOUTS[loaded]
    found, ends = gang.run(jobs.load_and_continue, layout, stage, tmp_path, ranks=ranks)[0]
    assert_same_metrics(found, metrics, 0.0 if saved == loaded else 1e-4)
    assert_same_weights(ends, weights, 0.0 if saved == loaded else 1e-4)


@layouts("tensor 2")
def test_a_critic_goes_on_bit_for_bit(gang: Gang, tmp_path: Path, name: str) -> None:
    """Two groups of parameters, each with its own learning rate and moments."""
    layout, ranks = LAYOUTS[name]
    stage = make_stage(critic=True)
    metrics, weights = gang.run(jobs.save_then_continue, layout, stage, tmp_path, 2, ranks=ranks)[0]
    found, ends = gang.run(jobs.load_and_continue, layout, stage, tmp_path, ranks=ranks)[0]
    assert_same_metrics(found, metrics, 0.0)
    assert_same_weights(ends, weights, 0.0)


@pytest.mark.slow
def test_a_checkpoint_before_the_first_step_continues_too(gang: Gang, tmp_path: Path) -> None:
    stage = make_stage(reference=True)
    metrics, weights = gang.run(jobs.save_then_continue, TENSOR, stage, tmp_path, 0, ranks=2)[0]
    found, ends = gang.run(jobs.load_and_continue, TENSOR, stage, tmp_path, ranks=2)[0]
    assert_same_metrics(found, metrics, 0.0)
    assert_same_weights(ends, weights, 0.0)


@pytest.mark.parametrize(("name", "family"), [("tensor 2, pipeline 2", "qwen3"), ("one", "llama")])
def test_an_export_is_what_transformers_loads(gang: Gang, tmp_path: Path, name: str, family: str) -> None:
    from transformers import AutoModelForCausalLM

    layout, ranks = LAYOUTS[name]
    gang.run(jobs.export, layout, tmp_path, family, ranks=ranks)
    found = AutoModelForCausalLM.from_pretrained(tmp_path).state_dict()
    wanted = tiny_model(family).state_dict()
    assert found.keys() == wanted.keys()
    assert all(torch.equal(found[key], wanted[key]) for key in wanted)


def test_a_loss_that_is_no_number_leaves_the_weights_alone(gang: Gang) -> None:
    assert gang.run(jobs.train_on_nan, TENSOR, ranks=2) == [(True, True)] * 2


@pytest.mark.parametrize("name", ["tensor 2", pytest.param("tensor 2, pipeline 2", marks=pytest.mark.slow)])
def test_bfloat16_weights_with_float32_gradients(gang: Gang, name: str) -> None:
    """The numbers are those of float32 up to bfloat16's rounding; small steps are not lost in it."""
    layout, ranks = LAYOUTS[name]
    (rows, output), metrics, weights = expected(make_stage(), 3, "qwen2")
    answers = gang.run(jobs.train_in_bfloat16, layout, ranks=ranks)
    order = torch.argsort(torch.cat([answer[0][0] for answer in answers]))
    logprobs = torch.cat([answer[0][1].logprobs for answer in answers])[order]
    assert (logprobs - output.logprobs[torch.argsort(rows)]).abs().mean() < 0.1
    for here, there in zip(answers[0][1], metrics, strict=True):
        assert here["grad_norm"] == pytest.approx(there["grad_norm"], rel=0.1)
        assert here["loss"] == pytest.approx(there["loss"], abs=0.1)
    found = answers[0][2]
    assert {tensor.dtype for tensor in found.values()} == {torch.bfloat16}
    assert_same_weights({key: tensor.float() for key, tensor in found.items()}, weights, 0.02)
