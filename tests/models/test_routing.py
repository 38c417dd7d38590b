"""Experts that a sampler chose, replayed by the learner: equal log-probabilities, and a gradient of the router."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
import torch
from tiny_models import EOS, PAD, VOCABULARY, make_requests, tiny_qwen2
from torch import Tensor
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

from rlinf.data.inputs import TextInputs
from rlinf.data.messages import Completion, SampleRequest, SamplingParams
from rlinf.models.causal_lm import CausalLMPolicy
from rlinf.models.routing import RouteRecorder, replayed, routers
from rlinf.samplers.hf import HFSampler

LAYERS, EXPERTS, CHOSEN = 3, 8, 2
PARAMS = SamplingParams(max_new_tokens=12)


@pytest.fixture(scope="module")
def model() -> Any:
    """Random experts that differ clearly, behind a router whose scores are close."""
    torch.manual_seed(0)
    config = Qwen3MoeConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        head_dim=16,
        moe_intermediate_size=32,
        num_hidden_layers=LAYERS,
        num_attention_heads=2,
        num_key_value_heads=2,
        num_experts=EXPERTS,
        num_experts_per_tok=CHOSEN,
        norm_topk_prob=True,
        eos_token_id=EOS,
        pad_token_id=PAD,
    )
    made = Qwen3MoeForCausalLM(config).eval()
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            if parameter.ndim > 1 and not name.endswith("gate.weight"):
                parameter.mul_(8.0)
    return made


def sampled(model: Any) -> tuple[list[SampleRequest], list[Completion]]:
    sampler = HFSampler(
        copy.deepcopy(model),
        eos_token_ids=[EOS],
        pad_token_id=PAD,
        seed=7,
        generation_batch_size=8,
        max_model_len=64,
        record_routes=True,
    )
    requests = make_requests(PARAMS)
    return requests, sampler.sample(requests)


def batch_of(requests: list[SampleRequest], done: list[Completion]) -> tuple[TextInputs, Tensor, Tensor, Tensor]:
    """Inputs with routes, actions [B, T], mask [B, T] and the sampler's log-probabilities [B, T]."""

    def padded(rows: list[Any], fill: float) -> Tensor:
        tensors = [torch.as_tensor(row) for row in rows]
        return torch.nn.utils.rnn.pad_sequence(tensors, batch_first=True, padding_value=fill)

    prompts = [requests[one.request_id].prompt_ids for one in done]
    lengths = torch.tensor([len(one.token_ids) for one in done])
    inputs = TextInputs(
        padded(prompts, PAD),
        torch.tensor([len(prompt) for prompt in prompts]),
        lengths,
        routes=padded([one.routes for one in done], -1),
    )
    actions = padded([one.token_ids.array.astype("int64") for one in done], PAD)
    mask = torch.arange(actions.shape[1]) < lengths[:, None]
    return inputs, actions, mask, padded([one.logprobs.array for one in done], 0.0)


def gap(model: Any, inputs: TextInputs, actions: Tensor, mask: Tensor, logprobs: Tensor, *, pack: bool) -> float:
    """Mean distance of the learner's log-probabilities from the sampler's, in nats."""
    policy = CausalLMPolicy(copy.deepcopy(model), sampling=PARAMS, pack_rows=pack)
    with torch.no_grad():
        found = policy.evaluate(inputs, actions, mask, with_entropy=False).logprobs
    return float((found - logprobs).abs()[mask].mean())


def test_each_token_but_the_last_has_its_experts(model: Any) -> None:
    """In the order of prompt and response, whatever else was decoded with it."""
    requests, done = sampled(model)
    recorder = RouteRecorder(plain := copy.deepcopy(model))
    for one in done:
        tokens = [*requests[one.request_id].prompt_ids, *one.token_ids][:-1]
        with torch.no_grad():
            plain(input_ids=torch.tensor([tokens]))
        assert one.routes is not None
        assert one.routes.dtype == "int16"
        assert one.routes.tolist() == recorder.taken().tolist()
        assert one.routes.shape == (len(tokens), LAYERS * CHOSEN)


@pytest.mark.parametrize("pack", [True, False], ids=["packed", "padded"])
def test_a_perturbed_router_changes_a_tenth_with_replay(model: Any, pack: bool) -> None:
    inputs, actions, mask, logprobs = batch_of(*sampled(model))
    assert gap(model, inputs, actions, mask, logprobs, pack=pack) < 1e-5
    perturbed = copy.deepcopy(model)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for router in routers(perturbed):
            router.weight.add_(1e-2 * torch.randn(router.weight.shape, generator=generator))
    without = gap(perturbed, replace(inputs, routes=None), actions, mask, logprobs, pack=pack)
    replay = gap(perturbed, inputs, actions, mask, logprobs, pack=pack)
    assert without > 0.1
    assert replay < without / 10, (replay, without)


def test_the_gradient_reaches_the_router_through_replayed_experts(model: Any) -> None:
    """Also if all of them are others than the router would choose now: weights are those of its softmax."""
    policy = CausalLMPolicy(copy.deepcopy(model), sampling=PARAMS)
    inputs, actions, mask, _ = batch_of(*sampled(model))
    assert inputs.routes is not None
    drifted = torch.where(inputs.routes >= 0, (inputs.routes + 3) % EXPERTS, -1).to(torch.int16)
    output = policy.evaluate(replace(inputs, routes=drifted), actions, mask, with_entropy=False)
    output.logprobs[mask].mean().backward()
    for router in routers(policy.model):
        assert float(router.weight.grad.abs().max()) > 1e-8
        assert not router._forward_hooks


def test_weights_are_the_softmax_of_the_replayed_experts_by_hand(model: Any) -> None:
    router = copy.deepcopy(routers(model)[0])
    with torch.no_grad():
        router.weight.zero_()
        router.weight[:4, 0] = torch.tensor([1.0, 2.0, 3.0, 0.0])

    class One(torch.nn.Module):
        config = model.config

        def __init__(self) -> None:
            super().__init__()
            self.gate = router

    one, state = One(), torch.eye(1, 32).repeat(2, 1)
    with replayed(one, torch.tensor([[3, 0], [-1, -1]], dtype=torch.int16)):
        _, weights, experts = one.gate(state)
    assert experts.tolist() == [[3, 0], [2, 1]]
    e = torch.tensor(1.0).exp()
    torch.testing.assert_close(weights[0], torch.stack([1 / (1 + e), e / (1 + e)]))
    torch.testing.assert_close(weights[1], torch.stack([e / (1 + e), 1 / (1 + e)]))


def test_models_without_known_routers_are_refused() -> None:
    with pytest.raises(ValueError, match="the experts of model_type qwen2 can't be recorded"):
        routers(tiny_qwen2())


def test_routes_of_rows_of_different_lengths_join() -> None:
    lengths = torch.tensor([1])
    short, long = (
        TextInputs(torch.ones(1, 1, dtype=torch.int64), lengths, lengths, routes=torch.ones(1, n, 2, dtype=torch.int16))
        for n in (1, 2)
    )
    joined = TextInputs.join([short, long]).routes
    assert joined is not None
    assert joined.tolist() == [[[1, 1], [-1, -1]], [[1, 1], [1, 1]]]
