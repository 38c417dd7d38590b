"""The gradient depends on the batch alone: not on micro-batches, padding, packing or the number of ranks."""

import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from ranks import start_ranks

from rlinf.algorithms.catalog import LOSSES
from rlinf.algorithms.objective import Objective
from rlinf.data.batch import Batch
from rlinf.data.inputs import TextInputs, named_inputs
from rlinf.data.messages import SamplingParams
from rlinf.learners.minibatch import NonFiniteUpdate
from rlinf.learners.stage import Stage
from rlinf.learners.torch import TorchLearner
from rlinf.models.causal_lm import CausalLMPolicy
from rlinf.schema import OptimizerConfig

VOCABULARY = 37


def policy(*, pack: bool = True, value_head: bool = False) -> CausalLMPolicy:
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        tie_word_embeddings=True,
        pad_token_id=0,
        eos_token_id=1,
        bos_token_id=None,
    )
    model = Qwen2ForCausalLM(config).eval()
    sampling = SamplingParams(max_new_tokens=8)
    return CausalLMPolicy(model, sampling=sampling, pack_rows=pack, value_head=value_head)


def batch(rows: int = 12, positions: int = 8) -> Batch:
    """Rows of three prompts with responses of unequal length."""
    generator = torch.Generator().manual_seed(3)

    def ints(high: int, *shape: int) -> torch.Tensor:
        return torch.randint(2, high, shape, generator=generator)

    groups = torch.arange(rows) % 3
    responses = torch.randint(1, positions + 1, (rows,), generator=generator)
    mask = torch.arange(positions) < responses[:, None]
    advantages = torch.randn(rows, 1, generator=generator).expand(rows, positions) * mask
    return Batch(
        inputs=named_inputs(
            {
                "prompt_ids": ints(VOCABULARY, 3, 5)[groups],
                "prompt_lengths": torch.tensor([5, 3, 4])[groups],
                "response_lengths": responses,
            }
        ),
        actions=ints(VOCABULARY, rows, positions),
        mask=mask,
        rollout_logprobs=torch.full((rows, positions), -3.6) * mask,
        rewards=torch.zeros(rows),
        group_ids=groups,
        policy_version=torch.zeros(rows, positions, dtype=torch.int32),
        old_logprobs=torch.full((rows, positions), -3.6) * mask,
        ref_logprobs=torch.full((rows, positions), -3.5) * mask,
        advantages=advantages,
    )


PLAIN = OptimizerConfig(lr=1e-2)


def stage(**options: Any) -> Stage:
    objective = Objective.of(
        "actor",
        kl_beta=0.1,
        entropy_bonus=0.01,
        loss_agg_func=options.pop("agg", "token-mean"),
        clip_schedule=options.pop("clip_schedule", "constant"),
    )
    named = {"name": options.pop("moved_by", "adamw"), "schedule": options.pop("schedule", "constant")}
    optimizer = OptimizerConfig(lr=options.pop("lr", 1e-2), **named)
    return Stage(**{"name": "train", "objective": objective, "optimizer": optimizer, "steps": 10, **options})


def learner(a_stage: Stage | None = None, *, budget: int = 10_000, pack: bool = True, **options: Any) -> TorchLearner:
    return TorchLearner(policy(pack=pack), stages=(a_stage or stage(),), seed=5, micro_batch_tokens=budget, **options)


def gradients(learner: TorchLearner) -> dict[str, torch.Tensor]:
    return {name: p.grad.clone() for name, p in learner.policy.named_parameters() if p.grad is not None}


def assert_same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor], *, atol: float = 3e-7) -> None:
    assert one.keys() == other.keys()
    for name in one:
        torch.testing.assert_close(one[name], other[name], atol=atol, rtol=2e-5, msg=lambda m, n=name: f"{n}: {m}")


@pytest.mark.parametrize("agg", ["token-mean", "seq-mean-token-sum", "seq-mean-token-mean"])
def test_micro_batches_do_not_change_the_gradient(agg: str) -> None:
    whole, cut = learner(stage(agg=agg)), learner(stage(agg=agg), budget=16)
    numbers, again = whole.update(batch(), step=0), cut.update(batch(), step=0)
    assert_same(gradients(whole), gradients(cut))
    assert numbers == pytest.approx(again, rel=1e-4, abs=1e-6)


def conversations() -> Batch:
    """The same rows, in which the environment wrote two tokens; a filter took the last row out."""
    talk = batch()
    wrote = torch.zeros_like(talk.mask)
    wrote[:, 1:3] = True
    kept = torch.arange(talk.num_rows) < talk.num_rows - 1
    return talk.replace(mask=talk.mask & ~wrote & kept[:, None], advantages=torch.where(wrote, 0.0, talk.advantages))


@pytest.mark.parametrize("agg", ["token-mean", "seq-mean-token-mean"])
def test_what_the_environment_wrote_is_learned_by_cross_entropy(agg: str) -> None:
    objective = Objective.of("actor", environment_coef=0.5, loss_agg_func=agg)
    unclipped = OptimizerConfig(lr=1e-2, grad_clip=0.0)
    own = stage(objective=objective, optimizer=unclipped)
    plain = stage(objective=Objective.of("actor", loss_agg_func=agg), optimizer=unclipped)
    whole, cut, without = learner(own), learner(own, budget=16), learner(plain)
    talk = conversations()
    numbers = whole.update(talk, step=0)
    assert cut.update(talk, step=0) == pytest.approx(numbers, rel=1e-4, abs=1e-6)
    assert_same(gradients(whole), gradients(cut))
    without.update(talk, step=0)

    model, inside = policy(), torch.arange(8) < TextInputs.of(talk.inputs).response_lengths[:, None]
    wrote = inside & ~talk.mask & talk.mask.any(dim=1, keepdim=True)
    counts = talk.mask.sum(dim=1, keepdim=True).clamp(min=1)
    weights = wrote / talk.mask.sum() if agg == "token-mean" else wrote / (counts * talk.mask.any(dim=1).sum())
    entropy = -(0.5 * weights * model.evaluate(talk.inputs, talk.actions, wrote).logprobs).sum()
    assert numbers["environment_loss"] == pytest.approx(entropy.item(), rel=1e-4)
    entropy.backward()
    expected = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    policy_part = gradients(without)
    difference = {name: grad - policy_part[name] for name, grad in gradients(whole).items()}
    assert_same(difference, expected, atol=2e-6)


def test_padding_does_not_change_the_gradient() -> None:
    plain, padded = learner(), learner()
    plain.update(batch(), step=0)
    rows = batch()
    padded.update(rows.replace(**rows.fitted(15, 15)), step=0)
    assert_same(gradients(plain), gradients(padded))


def test_packing_does_not_change_the_gradient() -> None:
    packed, padded = learner(), learner(pack=False)
    padded.policy.model.set_attn_implementation("sdpa")
    packed.update(batch(), step=0)
    padded.update(batch(), step=0)
    assert_same(gradients(packed), gradients(padded))


def test_row_order_does_not_change_the_gradient() -> None:
    plain, shuffled = learner(), learner()
    plain.update(batch(), step=0)
    shuffled.update(batch().select(torch.randperm(12)), step=0)
    assert_same(gradients(plain), gradients(shuffled))


def test_a_single_step_needs_no_evaluation_before_it() -> None:
    """Proximal log-probabilities of an earlier evaluation, and those of the step itself, correct stale tokens alike."""
    decoupled = stage(objective=Objective.of("decoupled"))
    before, within = learner(decoupled), learner(decoupled)
    stale = batch().replace(old_logprobs=None, fresh=torch.arange(8) >= torch.full((12, 1), 3))
    rows, output = before.evaluate(stale)
    evaluated = output.logprobs[rows.argsort()]
    numbers = before.update(stale.replace(old_logprobs=evaluated, fresh=None), step=0)
    again = within.update(stale, step=0)
    assert_same(gradients(before), gradients(within))
    gap = (evaluated - stale.rollout_logprobs).abs()[stale.mask & stale.fresh]
    assert again.pop("sampler_logprob_gap") == pytest.approx(float(gap.mean()), rel=1e-5)
    assert again.pop("sampler_logprob_gap_max") == pytest.approx(float(gap.max()), rel=1e-5)
    assert again == pytest.approx(numbers, rel=1e-4, abs=1e-6)


def test_older_tokens_alone_give_no_gap() -> None:
    stale = batch().replace(old_logprobs=None, fresh=torch.zeros(12, 8, dtype=torch.bool))
    numbers = learner(stage(objective=Objective.of("decoupled"))).update(stale, step=0)
    assert not [name for name in numbers if name.startswith("sampler_logprob_gap")]


def test_rows_that_no_sampler_drew_are_compared_with_none() -> None:
    """The log-probabilities of demonstrations are 0 in their column, which is no policy's."""
    shown = batch().replace(old_logprobs=None, rollout_logprobs=torch.zeros(12, 8))
    objective = Objective.of("reinforce")
    sampled = learner(stage(objective=objective)).update(shown, step=0)
    numbers = learner(stage(objective=objective, sampled=False)).update(shown, step=0)
    compared = {"ratio", "ratio_max", "approx_kl_k1", "approx_kl_k3", "rollout_mismatch_k1"}
    compared |= {"sampler_logprob_gap", "sampler_logprob_gap_max"}
    assert sampled.keys() - numbers.keys() == compared
    assert numbers == {name: value for name, value in sampled.items() if name not in compared}


LINEAR = [name for name, entry in LOSSES.items() if entry.zero_without_advantage]


def rows_computed(one: TorchLearner) -> list[int]:
    """Fills with the number of rows of every forward pass of ``one``."""
    seen: list[int] = []
    evaluate = one.policy.evaluate

    def spy(inputs: Any, actions: Any, mask: Any, **options: Any) -> Any:
        seen.append(len(actions))
        return evaluate(inputs, actions, mask, **options)

    one.policy.evaluate = spy
    return seen


@pytest.mark.parametrize("loss_type", LINEAR)
def test_rows_without_advantage_are_not_computed_and_do_not_change_the_gradient(loss_type: str) -> None:
    data = batch()
    data = data.replace(advantages=data.advantages * (data.group_ids != 1)[:, None])

    def updated(**options: Any) -> tuple[TorchLearner, list[int], dict[str, float]]:
        objective = Objective.of(loss_type, **options)
        one = learner(Stage(name="train", objective=objective, optimizer=PLAIN, epochs=2))
        seen = rows_computed(one)
        return one, seen, one.update(data, step=0)

    # The entropy is of every row, so with it every row is computed.
    (some, few, numbers), (whole, all_rows, expected) = updated(), updated(calculate_entropy=True)
    assert (sum(few), sum(all_rows)) == (2 * 8, 2 * 12)
    assert_same(gradients(some), gradients(whole), atol=2e-6)
    assert numbers["loss"] == pytest.approx(expected["loss"], rel=1e-4, abs=1e-6)


def test_rows_without_advantage_are_computed_where_another_term_reads_them() -> None:
    data = batch()
    for options in ({"kl_beta": 0.1}, {"entropy_bonus": 0.01}):
        one = learner(Stage(name="train", objective=Objective.of("actor", **options), optimizer=PLAIN))
        seen = rows_computed(one)
        one.update(data.replace(advantages=data.advantages * (data.group_ids != 1)[:, None]), step=0)
        assert sum(seen) == 12


def test_a_batch_without_any_advantage_still_has_metrics() -> None:
    one = learner(Stage(name="train", objective=Objective.of("actor"), optimizer=PLAIN))
    numbers = one.update(batch().replace(advantages=torch.zeros(12, 8), old_logprobs=None), step=0)
    assert (numbers["ratio"], numbers["grad_norm"]) == (1.0, 0.0)


def _rank(rank: int, size: int, port: int, folder: str) -> None:
    from rlinf.learners.process_group import join
    from rlinf.learners.ranks import TorchRanks

    torch.set_num_threads(1)
    device = torch.device("cpu")
    join(rank=rank, size=size, address="127.0.0.1", port=port, device=device, timeout_s=60)
    ranks = TorchRanks(device=device)
    one = learner(stage(epochs=2, minibatches=2), rank=rank, size=size, ranks=ranks)
    numbers = one.update(batch(), step=0)
    rows, output = one.evaluate(batch())
    torch.save(
        {"weights": dict(one.policy.state_dict()), "numbers": numbers, "rows": rows, "logprobs": output.logprobs},
        f"{folder}/rank{rank}.pt",
    )


@pytest.mark.slow
def test_two_ranks_do_what_one_does(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    for process in start_ranks(_rank, [(rank, 2, port, str(tmp_path)) for rank in range(2)]):
        process.join(timeout=120)
        assert process.exitcode == 0
    alone = learner(stage(epochs=2, minibatches=2))
    numbers = alone.update(batch(), step=0)
    parts = [torch.load(tmp_path / f"rank{rank}.pt") for rank in range(2)]
    for part in parts:
        # Four Adam steps divide rounding by small second moments.
        assert_same(part["weights"], dict(alone.policy.state_dict()), atol=2e-5)
        assert part["numbers"] == pytest.approx(numbers, rel=1e-3, abs=1e-5)
    rows = torch.cat([part["rows"] for part in parts])
    assert sorted(rows.tolist()) == list(range(12))
    found = torch.cat([part["logprobs"] for part in parts])[torch.argsort(rows)]
    order, expected = alone.evaluate(batch())
    torch.testing.assert_close(found, expected.logprobs[torch.argsort(order)], atol=1e-4, rtol=1e-4)


def test_a_number_that_is_none_stops_before_the_weights() -> None:
    one = learner()
    before = {name: tensor.clone() for name, tensor in one.policy.state_dict().items()}
    poisoned = batch().replace(advantages=batch().mask.float() * torch.inf)
    with pytest.raises(NonFiniteUpdate, match="weights were left"):
        one.update(poisoned, step=0)
    assert_same(before, dict(one.policy.state_dict()))


def test_a_minibatch_too_far_from_the_old_policy_is_skipped_and_counted() -> None:
    one = learner(stage(early_stop_imp_ratio=1.5))
    before = {name: tensor.clone() for name, tensor in one.policy.state_dict().items()}
    far = batch().replace(old_logprobs=torch.full((12, 8), -9.0))
    assert one.update(far, step=0)["skipped_minibatches"] == 1.0
    assert_same(before, dict(one.policy.state_dict()))


@pytest.mark.parametrize("optimizer", ["adamw", "rmsprop"])
def test_a_skipped_minibatch_is_no_step_in_the_metrics(optimizer: str) -> None:
    one = learner(stage(early_stop_imp_ratio=1.5, clip_schedule="linear", moved_by=optimizer))
    far = batch().replace(old_logprobs=torch.full((12, 8), -9.0))
    assert one.update(far, step=0)["clip_factor"] == 1.0
    taken = one.update(batch(), step=1)["update_ratio"]
    # RMSprop's last update is read off the gradient, and that of the skipped minibatch moved nothing.
    assert one.update(far, step=2).get("update_ratio") == (taken if optimizer == "adamw" else None)


@pytest.mark.parametrize("optimizer", ["adamw", "rmsprop", "rmsprop_tf"])
def test_a_saved_learner_continues_bit_for_bit(tmp_path: Path, optimizer: str) -> None:
    schedules = {"schedule": "cosine", "clip_schedule": "linear", "moved_by": optimizer}
    straight, stopped, resumed = (learner(stage(reference=True, **schedules)) for _ in range(3))
    for step in range(2):
        straight.update(batch(), step=step)
        stopped.update(batch(), step=step)
    stopped.save(tmp_path)
    resumed.load(tmp_path)
    straight.update(batch(), step=2)
    resumed.update(batch(), step=2)
    for name, tensor in straight.policy.state_dict().items():
        assert torch.equal(tensor, resumed.policy.state_dict()[name]), name
    for reference in (straight.reference, resumed.reference):
        assert reference is not None
    for left, right in zip(straight.reference.parameters(), resumed.reference.parameters(), strict=True):
        assert torch.equal(left, right)


def test_clip_ranges_fall_with_the_optimiser_steps() -> None:
    """Three optimiser steps of three epochs in the only iteration: the clip is 0.2, then 2/3 and 1/3 of it."""
    rows = batch().replace(ref_logprobs=None)
    objective = Objective.of("actor", clip_schedule="linear")
    trained = {}
    for factors in ([1.0, 2 / 3, 1 / 3], None):
        one = learner(Stage("train", objective, PLAIN, steps=1, epochs=3))
        if factors is None:
            assert one.update(rows, step=0)["clip_factor"] == pytest.approx(1 / 3)
        else:
            for number, factor in enumerate(factors):
                constant = Objective.of("actor", ratio_clip_eps=0.2 * factor)
                one.stage = Stage("train", constant, PLAIN, steps=1, epochs=1)
                one.update(rows, step=number)
        trained[factors is None] = {name: tensor.clone() for name, tensor in one.policy.state_dict().items()}
    assert_same(trained[True], trained[False])


def test_a_checkpoint_goes_on_with_another_learning_rate_at_the_same_step_of_the_schedule(tmp_path: Path) -> None:
    """As population-based training continues it: weights and moments are the other one's, the options its own."""
    donor = learner(stage(lr=1e-3, schedule="linear", steps=10, minibatches=2))
    for step in range(5):
        donor.update(batch(), step=step)
    donor.save(tmp_path)
    taker = learner(stage(lr=4e-3, schedule="linear", steps=10, minibatches=1))
    taker.load(tmp_path)
    assert_same(dict(donor.policy.state_dict()), dict(taker.policy.state_dict()))
    assert taker.optimizer_steps == 5
    assert len(taker.optimizer.state_dict()["state"]) == len(donor.optimizer.state_dict()["state"])
    assert taker.update(batch(), step=5)["lr"] == pytest.approx(4e-3 * 0.5)


def test_the_first_stage_of_another_name_is_not_loaded(tmp_path: Path) -> None:
    one = learner(stage(name="sft"))
    one.save(tmp_path)
    with pytest.raises(ValueError, match="'sft', not 'train'"):
        learner().load(tmp_path)


def test_supervised_learning_is_cross_entropy() -> None:
    """With advantage 1, ``reinforce`` and token-mean give the mean cross-entropy of the response tokens."""
    one = learner(Stage(name="sft", objective=Objective.of("reinforce"), optimizer=replace(PLAIN, lr=1e-3)))
    data = batch()
    ones = data.replace(advantages=data.mask.float(), ref_logprobs=None, old_logprobs=None)
    expected = -policy().evaluate(data.inputs, data.actions, data.mask).logprobs.sum() / data.mask.sum()
    assert one.update(ones, step=0)["loss"] == pytest.approx(expected.item(), rel=1e-5)


def with_adapters(dropout: float = 0.0) -> CausalLMPolicy:
    from rlinf.models.loading import add_lora

    model = add_lora(policy().model, rank=2, alpha=4, dropout=dropout, target_modules=["q_proj", "v_proj"], seed=0)
    return CausalLMPolicy(model, sampling=SamplingParams(max_new_tokens=8))


def test_adapters_drop_out_in_updates_alone_and_the_same_ones_again() -> None:
    pytest.importorskip("peft")

    def learner(dropout: float) -> TorchLearner:
        one = TorchLearner(with_adapters(dropout), stages=(stage(),), seed=0, micro_batch_tokens=1000)
        one.update(batch(), step=1)  # adapters have no effect before
        return one

    one, again, without = learner(0.5), learner(0.5), learner(0.0)
    first = one.evaluate(batch())[1].logprobs
    torch.rand(1)
    assert torch.equal(first, one.evaluate(batch())[1].logprobs)
    for learner_ in (one, again, without):
        learner_.update(batch(), step=2)
    assert_same(dict(one.policy.state_dict()), dict(again.policy.state_dict()))
    weights = [dict(found.policy.state_dict()) for found in (one, without)]
    assert any(not torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


def test_the_reference_of_new_adapters_is_the_base_with_adapters_off() -> None:
    """With `teacher.past_policy: start` and LoRA nothing of the base is held twice."""
    pytest.importorskip("peft")
    one = TorchLearner(with_adapters(), stages=(stage(reference=True),), seed=0, micro_batch_tokens=1000)
    base = TorchLearner(policy(), stages=(stage(),), seed=0, micro_batch_tokens=1000).evaluate(batch())[1].logprobs
    for step in range(2):
        one.update(batch(), step=step)
    assert not torch.equal(one.evaluate(batch())[1].logprobs, base)
    torch.testing.assert_close(one.evaluate(batch(), reference=True)[1].logprobs, base)
    held = sum(parameter.numel() for parameter in one.reference.parameters())
    assert held < 0.1 * sum(parameter.numel() for parameter in one.policy.parameters())


@pytest.mark.parametrize("make", [policy, with_adapters])
def test_an_average_of_the_weights_is_a_reference(make: Any, tmp_path: Path) -> None:
    if make is with_adapters:
        pytest.importorskip("peft")

    def learner() -> TorchLearner:
        return TorchLearner(make(), stages=(stage(reference=True),), seed=0, micro_batch_tokens=1000)

    def trained(one: TorchLearner) -> list[torch.Tensor]:
        whole = one.policy.copied_adapters() if make is with_adapters else one.policy
        return [tensor.detach().clone() for tensor in whole.parameters()]

    one, average = learner(), None
    for step in range(3):
        average = trained(one) if average is None else average
        one.update(batch(), step=step)
        one.refresh_reference(keep=0.75)
        average = [0.75 * old + 0.25 * new for old, new in zip(average, trained(one), strict=True)]
    for kept, expected in zip(one.reference.parameters(), average, strict=True):
        torch.testing.assert_close(kept, expected, rtol=1e-5, atol=1e-7)
    one.save(tmp_path)
    again = learner()
    again.load(tmp_path)
    for kept, expected in zip(again.reference.parameters(), one.reference.parameters(), strict=True):
        assert torch.equal(kept, expected)


@pytest.mark.parametrize("make", [policy, with_adapters])
def test_the_reference_is_the_policy_of_its_last_refresh(make: Any, tmp_path: Path) -> None:
    if make is with_adapters:
        pytest.importorskip("peft")

    def logprobs(learner: TorchLearner, *, reference: bool) -> torch.Tensor:
        return learner.evaluate(batch(), reference=reference)[1].logprobs

    def learner() -> TorchLearner:
        return TorchLearner(make(), stages=(stage(reference=True),), seed=0, micro_batch_tokens=1000)

    one = learner()
    first = logprobs(one, reference=False)
    one.update(batch(), step=1)
    assert torch.equal(logprobs(one, reference=True), first)
    one.refresh_reference()
    refreshed = logprobs(one, reference=True)
    assert torch.equal(refreshed, logprobs(one, reference=False))
    assert not torch.equal(refreshed, first)
    one.update(batch(), step=2)
    assert torch.equal(logprobs(one, reference=True), refreshed)
    one.save(tmp_path)
    other = learner()
    other.load(tmp_path)
    assert torch.equal(logprobs(other, reference=True), refreshed)
