"""The FSDP learner gives the torch learner's numbers over one, two and three ranks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import learner_jobs as jobs
import pytest
import torch
from learner_cases import MICRO_BATCH_TOKENS, make_batch, make_stage, tiny_model, without_responses
from learner_gang import Gang
from test_megatron_learner import assert_same_metrics, assert_same_weights, expected, torch_learner

from rlinf.algorithms.objective import Objective
from rlinf.learners.partition import minibatches
from rlinf.learners.torch import TorchLearner


@pytest.mark.parametrize("ranks", [2, *(pytest.param(ranks, marks=pytest.mark.slow) for ranks in (1, 3))])
def test_one_step_is_that_of_the_torch_learner(gang: Gang, ranks: int) -> None:
    stage = make_stage()
    (rows, output), metrics, weights = expected(stage, 1, "qwen2")
    answers = gang.run(jobs.evaluate_and_train_fsdp, stage, 1, "qwen2", ranks=ranks)
    order = torch.argsort(torch.cat([answer[0][0] for answer in answers]))
    found = torch.cat([answer[0][1].logprobs for answer in answers])[order]
    torch.testing.assert_close(found, output.logprobs[torch.argsort(rows)], atol=1e-4, rtol=0)
    for answer in answers:
        assert_same_metrics(answer[1], metrics, 1e-4)
    assert_same_weights(answers[0][2], weights, 1e-5)


@pytest.mark.parametrize(
    "family", ["qwen2", *(pytest.param(name, marks=pytest.mark.slow) for name in ("qwen3", "qwen3_moe"))]
)
def test_three_updates_give_the_same_metrics(gang: Gang, family: str) -> None:
    stage = make_stage(minibatches=2, reference=True)
    _, metrics, weights = expected(stage, 3, family)
    answers = gang.run(jobs.evaluate_and_train_fsdp, stage, 3, family, ranks=2)
    for answer in answers:
        assert_same_metrics(answer[1], metrics, 1e-4)
    assert_same_weights(answers[0][2], weights, 1e-4)


def test_what_the_environment_wrote_is_learned_the_same(gang: Gang) -> None:
    objective = Objective.of("actor", environment_coef=0.2, loss_agg_func="seq-mean-token-mean")
    stage = replace(make_stage(), objective=objective)
    _, metrics, weights = expected(stage, 2, "qwen2")
    assert metrics[0]["environment_loss"] > 0
    answers = gang.run(jobs.evaluate_and_train_fsdp, stage, 2, "qwen2", ranks=2)
    for answer in answers:
        assert_same_metrics(answer[1], metrics, 1e-4)
    assert_same_weights(answers[0][2], weights, 1e-5)


def test_a_critic_learns_the_same(gang: Gang) -> None:
    stage = make_stage(critic=True)
    _, metrics, weights = expected(stage, 3, "qwen2")
    answers = gang.run(jobs.evaluate_and_train_fsdp, stage, 3, "qwen2", ranks=2)
    for answer in answers:
        assert_same_metrics(answer[1], metrics, 1e-4)
    assert_same_weights(answers[0][2], weights, 1e-5)


@pytest.mark.parametrize("loading", [pytest.param(2, marks=pytest.mark.slow), 1])
def test_a_checkpoint_continues_over_another_number_of_ranks(gang: Gang, tmp_path: Path, loading: int) -> None:
    stage = make_stage(reference=True)
    metrics, weights = gang.run(jobs.save_then_continue_fsdp, stage, tmp_path, ranks=2)[0]
    found, ends = gang.run(jobs.load_and_continue_fsdp, stage, tmp_path, ranks=loading)[0]
    assert_same_metrics(found, metrics, 0.0 if loading == 2 else 1e-4)
    assert_same_weights(ends, weights, 0.0 if loading == 2 else 1e-4)


@pytest.mark.slow
def test_adapters_on_two_ranks_are_those_of_one_torch_rank(gang: Gang, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    stage = make_stage(reference=True)
    alone = TorchLearner(jobs.adapted_policy(), stages=(stage,), seed=5, micro_batch_tokens=MICRO_BATCH_TOKENS)
    wanted = [jobs.take_step(alone, step) for step in range(5)]
    answers = gang.run(jobs.train_adapters_fsdp, stage, tmp_path, ranks=2)
    for metrics, _ in answers:
        assert_same_metrics(metrics, wanted, 1e-4)
    found = answers[0][1]
    sizes = {form: sum(tensor.nbytes for tensor in weights.values()) for form, weights in found.items()}
    assert sizes["changing"] < sizes["merged"] / 4
    for form in ("merged", "separate", "changing"):
        assert_same_weights(found[form], jobs.weights_as(alone, form), 1e-6)
    assert set(found["changing"]) == {name for name in found["separate"] if name.partition("@")[2] not in ("", "base")}
    exported = AutoModelForCausalLM.from_pretrained(tmp_path / "export").state_dict()
    assert all(torch.equal(exported[name], tensor) for name, tensor in found["merged"].items())
    assert (tmp_path / "export" / "adapter" / "adapter_model.safetensors").exists()


def test_an_export_is_what_transformers_loads(gang: Gang, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    gang.run(jobs.export_fsdp, tmp_path, ranks=2)
    found = AutoModelForCausalLM.from_pretrained(tmp_path).state_dict()
    wanted = tiny_model().state_dict()
    assert found.keys() == wanted.keys()
    assert all(torch.equal(found[key], wanted[key]) for key in wanted)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["qwen2", "qwen3_moe"])
def test_ranks_that_have_their_own_rows_alone_learn_the_same(gang: Gang, family: str) -> None:
    stage = make_stage(epochs=2, minibatches=3)
    for metrics, weights in gang.run(jobs.train_on_own_rows, None, stage, family, ranks=3):
        assert metrics[0] == metrics[1]
        assert all(torch.equal(tensor, weights[1][name]) for name, tensor in weights[0].items())


def test_rows_without_a_response_are_left_out(gang: Gang) -> None:
    batch = make_batch()
    answers = gang.run(jobs.evaluate_fsdp, without_responses(batch, torch.arange(3)), ranks=2)
    rows = torch.cat([answer[0] for answer in answers])
    logprobs = torch.cat([answer[1].logprobs for answer in answers])
    assert sorted(rows.tolist()) == list(range(3, batch.num_rows))
    assert (logprobs != 0).any(dim=1).all()


@pytest.mark.slow
@pytest.mark.parametrize("own", [pytest.param(False, marks=pytest.mark.slow), True])
@pytest.mark.parametrize("critic", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_minibatches_without_a_response_are_steps_as_of_the_torch_learner(gang: Gang, critic: bool, own: bool) -> None:
    """Adam and weight decay move the weights where no row of a rank, of a minibatch or of the batch has a gradient."""
    stage, batch = make_stage(minibatches=3, critic=critic), make_batch()
    batch = batch.replace(old_logprobs=batch.rollout_logprobs, old_values=torch.zeros_like(batch.rollout_logprobs))
    first, *_ = minibatches(batch.num_rows, parts=3, seed=5, step=1, epoch=0)
    everything = torch.arange(batch.num_rows)
    nothing, one_row = without_responses(batch, everything), without_responses(batch, everything[1:])
    for given in ([batch, without_responses(batch, first), nothing], [nothing, one_row]):
        metrics, weights = jobs.train_on_batches(torch_learner(stage), given, own)
        answers = gang.run(jobs.train_fsdp_on, given, stage, own, ranks=2)
        for found, _ in answers:
            assert_same_metrics(found, metrics, 1e-4)
        assert_same_weights(answers[0][1], weights, 1e-5)
