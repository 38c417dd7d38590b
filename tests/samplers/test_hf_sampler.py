"""The transformers sampler: what it draws, from which distribution, and that it depends on nothing else."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tiny_models import EOS, VOCABULARY, forward_logprobs, make_requests, tiny_qwen2
from transformers import Gemma2Config, Gemma3TextConfig, GPT2Config, GPT2LMHeadModel, PreTrainedModel

from rlinf.base.errors import RunFailed
from rlinf.data.messages import Completion, SampleRequest, SamplingParams, WeightUpdate
from rlinf.interfaces import Sampler
from rlinf.models.architecture import random_causal_lm
from rlinf.models.weight_update import WeightUpdateError
from rlinf.samplers.hf import HFSampler

PARAMS = SamplingParams(max_new_tokens=20)


def by_id(completions: list[Completion]) -> dict[tuple[int, int], Completion]:
    return {(done.request_id, done.sample_index): done for done in completions}


def assert_same(first: list[Completion], second: list[Completion]) -> None:
    """Equal tokens; log-probabilities equal up to rounding."""
    left, right = by_id(first), by_id(second)
    assert left.keys() == right.keys()
    for key in left:
        assert left[key].token_ids == right[key].token_ids
        assert left[key].finish_reason == right[key].finish_reason
        assert left[key].logprobs == pytest.approx(right[key].logprobs, abs=1e-5)


def test_is_a_sampler(make_sampler: Callable[..., HFSampler]) -> None:
    assert isinstance(make_sampler(), Sampler)


@pytest.mark.parametrize(
    "params",
    [
        PARAMS,
        SamplingParams(max_new_tokens=20, temperature=0.7, top_k=8, top_p=0.9),
        SamplingParams(max_new_tokens=20, temperature=0.0),
        SamplingParams(max_new_tokens=12, repetition_penalty=1.3, ignore_eos=True),
    ],
)
def test_response_does_not_depend_on_the_batch(make_sampler: Callable[..., HFSampler], params: SamplingParams) -> None:
    requests = make_requests(params)
    together = make_sampler().sample(requests)
    assert [(c.request_id, c.sample_index) for c in together] == [
        (r.request_id, j) for r in requests for j in range(r.n)
    ]
    alone = [done for request in requests for done in make_sampler().sample([request])]
    shuffled = random.Random(1).sample(requests, len(requests))
    assert_same(together, alone)
    for batch in (1, 4, 7):
        assert_same(together, make_sampler(batch=batch).sample(shuffled))


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_logprobs_are_those_of_a_forward_pass(
    make_sampler: Callable[..., HFSampler], model: PreTrainedModel, temperature: float
) -> None:
    requests = make_requests(SamplingParams(max_new_tokens=20, temperature=temperature))
    prompts = {request.request_id: request.prompt_ids for request in requests}
    for done in make_sampler().sample(requests):
        expected = forward_logprobs(model, prompts[done.request_id], done.token_ids, temperature)
        torch.testing.assert_close(torch.tensor(done.logprobs), expected, atol=5e-5, rtol=0)


def test_greedy_takes_the_likeliest_token_and_reports_temperature_one(
    make_sampler: Callable[..., HFSampler], model: PreTrainedModel
) -> None:
    request = SampleRequest(0, (5, 6, 7), 1, SamplingParams(max_new_tokens=10, temperature=0.0, ignore_eos=True), (0,))
    (done,) = make_sampler().sample([request])
    tokens = list(request.prompt_ids)
    for token in done.token_ids:
        with torch.no_grad():
            assert token == int(model(input_ids=torch.tensor([tokens])).logits[0, -1].argmax())
        tokens.append(token)
    expected = forward_logprobs(model, request.prompt_ids, done.token_ids)
    torch.testing.assert_close(torch.tensor(done.logprobs), expected, atol=5e-5, rtol=0)


def test_draws_follow_the_distribution(make_sampler: Callable[..., HFSampler], model: PreTrainedModel) -> None:
    draws = 4000
    request = SampleRequest(0, (9, 4), draws, SamplingParams(max_new_tokens=1, temperature=2.0), (0,))
    counts = torch.zeros(VOCABULARY)
    for done in make_sampler(batch=draws).sample([request]):
        counts[done.token_ids[0]] += 1
    with torch.no_grad():
        expected = (model(input_ids=torch.tensor([request.prompt_ids])).logits[0, -1] / 2.0).softmax(-1) * draws
    used = expected > 5
    chi2 = float(((counts - expected) ** 2 / expected)[used].sum())
    assert chi2 < 2.0 * int(used.sum())


def test_finish_reasons(make_sampler: Callable[..., HFSampler]) -> None:
    sampler = make_sampler(max_model_len=16)
    params = SamplingParams(max_new_tokens=64)
    requests = [
        SampleRequest(0, tuple(range(2, 18)), 2, params, (0,)),
        SampleRequest(1, (3, 4), 40, params, (1,)),
    ]
    completions = sampler.sample(requests)
    assert [c.finish_reason for c in completions[:2]] == ["too_long", "too_long"]
    assert all(c.token_ids == () for c in completions[:2])
    reasons = {c.finish_reason for c in completions[2:]}
    assert reasons == {"stop", "length"}
    for done in completions[2:]:
        assert EOS not in done.token_ids[:-1]
        assert (done.token_ids[-1] == EOS) == (done.finish_reason == "stop")
        if done.finish_reason == "length":
            assert len(done.token_ids) == 14


def test_stop_tokens_and_ignored_eos(make_sampler: Callable[..., HFSampler]) -> None:
    stop = SamplingParams(max_new_tokens=40, stop_token_ids=(20, 21, 22, 23), ignore_eos=True)
    completions = make_sampler().sample([SampleRequest(0, (3, 4), 40, stop, (1,))])
    stopped = [done for done in completions if done.finish_reason == "stop"]
    assert stopped
    assert all(done.token_ids[-1] in stop.stop_token_ids for done in stopped)
    assert any(EOS in done.token_ids for done in completions)


def test_prefix_continues_the_same_response(make_sampler: Callable[..., HFSampler]) -> None:
    requests = make_requests(SamplingParams(max_new_tokens=20, ignore_eos=True), n=2)
    whole = by_id(make_sampler().sample(requests))
    for request in requests:
        first = whole[request.request_id, 1]
        rest = SampleRequest(
            100, request.prompt_ids, 1, request.params, request.key, prefix=first.token_ids[:7], first_sample=1
        )
        (done,) = make_sampler().sample([rest])
        assert first.token_ids[:7] + done.token_ids == first.token_ids
        assert done.sample_index == 1


def test_abort_gives_what_is_there_and_continues(make_sampler: Callable[..., HFSampler]) -> None:
    requests = make_requests(SamplingParams(max_new_tokens=20, ignore_eos=True), n=1)
    short = SampleRequest(50, (4,), 1, SamplingParams(max_new_tokens=5, ignore_eos=True), (50,))
    sampler = make_sampler()
    # The stop list and limits are equal, so the short request shares the batch and ends first.
    stream = sampler.stream([*requests, short])
    assert next(stream).request_id == 50
    (aborted,) = sampler.abort([2])
    assert aborted.finish_reason == "abort"
    assert len(aborted.token_ids) == 5
    others = list(stream)
    assert sorted(done.request_id for done in others) == [0, 1, 3, 4, 5]
    (expected,) = make_sampler().sample([requests[2]])
    resumed = SampleRequest(0, requests[2].prompt_ids, 1, requests[2].params, requests[2].key, prefix=aborted.token_ids)
    (rest,) = sampler.sample([resumed])
    assert aborted.token_ids + rest.token_ids == expected.token_ids


def test_abort_reaches_requests_that_wait(make_sampler: Callable[..., HFSampler]) -> None:
    requests = make_requests(SamplingParams(max_new_tokens=6, ignore_eos=True), n=1)
    sampler = make_sampler(batch=2)
    stream = sampler.stream(requests)
    first = next(stream)
    rest = [request.request_id for request in requests if request.request_id != first.request_id]
    assert {done.request_id for done in sampler.abort(rest)} <= set(rest)
    assert sampler.abort(rest) == []
    assert len(list(stream)) <= 1


def test_only_one_stream_at_a_time(make_sampler: Callable[..., HFSampler]) -> None:
    sampler = make_sampler()
    stream = sampler.stream(make_requests(PARAMS))
    next(stream)
    with pytest.raises(RuntimeError, match="streaming already"):
        sampler.sample(make_requests(PARAMS))
    stream.close()
    assert sampler.sample(make_requests(PARAMS, prompts=1))


def test_new_weights_in_the_middle_of_a_stream(make_sampler: Callable[..., HFSampler], model: PreTrainedModel) -> None:
    params = SamplingParams(max_new_tokens=16, ignore_eos=True)
    short = SampleRequest(50, (4,), 1, SamplingParams(max_new_tokens=6, ignore_eos=True), (50,))
    request = SampleRequest(1, (3, 9, 14), 1, params, (1,))
    sampler = make_sampler()
    stream = sampler.stream([request, short])
    assert next(stream).request_id == 50
    before = forward_logprobs  # evaluated below, with the weights of each version
    old_model, new_model = tiny_qwen2(), tiny_qwen2(seed=5)
    metrics = sampler.load(WeightUpdate(3, dict(new_model.named_parameters())))
    assert metrics["weight_update_bytes"] == sum(p.numel() * 4 for p in new_model.parameters())
    (done,) = list(stream)
    assert done.policy_version == (0,) * 6 + (3,) * 10
    old = before(old_model, request.prompt_ids, done.token_ids)
    new = before(new_model, request.prompt_ids, done.token_ids)
    torch.testing.assert_close(torch.tensor(done.logprobs[:6]), old[:6], atol=5e-5, rtol=0)
    torch.testing.assert_close(torch.tensor(done.logprobs[6:]), new[6:], atol=5e-5, rtol=0)


@pytest.mark.parametrize("tied", [True, False])
def test_load_names_what_does_not_fit(make_sampler: Callable[..., HFSampler], tied: bool) -> None:
    model, other = tiny_qwen2(tied=tied), tiny_qwen2(tied=tied, seed=1)
    sampler = make_sampler(model)
    weights = dict(other.named_parameters())
    sampler.load(WeightUpdate(1, weights))
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, weights[name])
    with pytest.raises(WeightUpdateError, match=r"lacks model\.norm\.weight"):
        sampler.load(WeightUpdate(2, {n: p for n, p in weights.items() if n != "model.norm.weight"}))
    with pytest.raises(WeightUpdateError, match="no weights named extra"):
        sampler.load(WeightUpdate(2, {**weights, "extra": torch.zeros(1)}))
    with pytest.raises(WeightUpdateError, match=r"model\.norm\.weight \(3,\) instead of \(32,\)"):
        sampler.load(WeightUpdate(2, {**weights, "model.norm.weight": torch.zeros(3)}))
    head = {**weights, "lm_head.weight": weights["model.embed_tokens.weight"]}
    sampler.load(WeightUpdate(2, head))
    assert torch.equal(model.get_output_embeddings().weight, head["lm_head.weight"])


def test_refuses_requests_it_cannot_serve(make_sampler: Callable[..., HFSampler]) -> None:
    with pytest.raises(ValueError, match="request 4 has an empty prompt"):
        make_sampler().sample([SampleRequest(4, (), 1, PARAMS, (0,))])
    with pytest.raises(ValueError, match="request 4 appears twice"):
        make_sampler().sample([SampleRequest(4, (1,), 1, PARAMS, (0,))] * 2)
    with pytest.raises(ValueError, match="exactly 1 with a prefix"):
        make_sampler().sample([SampleRequest(4, (1,), 2, PARAMS, (0,), prefix=(3,))])


def test_architectures_of_other_kinds(make_sampler: Callable[..., HFSampler]) -> None:
    """Learned positions without grouped heads; sliding windows in every second layer, soft caps, norms of keys."""
    torch.manual_seed(0)
    gpt2 = GPT2LMHeadModel(GPT2Config(vocab_size=VOCABULARY, n_embd=32, n_layer=2, n_head=4, n_positions=128))
    sizes: dict[str, Any] = {
        "vocab_size": VOCABULARY,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "sliding_window": 6,
        "layer_types": ["sliding_attention", "full_attention"],
        "max_position_embeddings": 128,
    }
    gemma2 = random_causal_lm(Gemma2Config(**sizes, attn_logit_softcapping=0.5))
    gemma3 = random_causal_lm(Gemma3TextConfig(**sizes))
    requests = make_requests(SamplingParams(max_new_tokens=14), prompts=4, n=2)
    prompts = {request.request_id: request.prompt_ids for request in requests}
    for model in (gpt2.eval(), gemma2.eval(), gemma3.eval()):
        for done in make_sampler(model).sample(requests):
            expected = forward_logprobs(model, prompts[done.request_id], done.token_ids)
            torch.testing.assert_close(torch.tensor(done.logprobs), expected, atol=5e-5, rtol=0)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_logits_that_are_not_finite_are_named_with_their_step(
    make_sampler: Callable[..., HFSampler], model: PreTrainedModel, bad: float
) -> None:
    sampler = make_sampler()
    weights = {name: torch.full_like(tensor, bad) for name, tensor in model.state_dict().items()}
    sampler.load(WeightUpdate(5, weights))
    with pytest.raises(RunFailed, match="the policy's logits are not finite after step 5"):
        sampler.sample(make_requests(PARAMS))
