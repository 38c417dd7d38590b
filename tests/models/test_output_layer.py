"""Logits in float32 under bfloat16 activations: values, gradients, samplers, adapters."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from language_models import VOCABULARY, conversation, tiny
from torch import nn

from rlinf.data.messages import SamplingParams
from rlinf.models import token_scores
from rlinf.models.causal_lm import CausalLMPolicy
from rlinf.models.loading import add_lora
from rlinf.models.output_layer import use_float32_logits

SAMPLING = SamplingParams(max_new_tokens=9)


def evaluated(model: Any, *, float32_logits: bool, autocast: torch.dtype | None = torch.bfloat16) -> Any:
    policy = CausalLMPolicy(model, sampling=SAMPLING, autocast=autocast, float32_logits=float32_logits)
    output = policy.evaluate(*conversation())
    (output.logprobs**2 + 0.3 * output.entropy).sum().backward()
    return output, {name: p.grad for name, p in policy.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("kind", ["qwen2", "llama", "lora"])
def test_logits_are_products_in_float32_whole_and_in_chunks(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny("qwen2" if kind == "qwen2" else "llama")
    if kind == "lora":
        model = add_lora(model, rank=2, alpha=4, dropout=0.0, target_modules=["q_proj", "lm_head"], seed=0)
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                nn.init.normal_(parameter, std=0.1)
    seen: list[tuple[torch.dtype, torch.dtype]] = []
    plain = nn.functional.linear

    def linear(inputs: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        result = plain(inputs, weight, bias)
        if weight.shape[0] == VOCABULARY:
            seen.append((inputs.dtype, result.dtype))
        return result

    monkeypatch.setattr(nn.functional, "linear", linear)
    exact, _ = evaluated(copy.deepcopy(model), float32_logits=False, autocast=None)
    usual, _ = evaluated(copy.deepcopy(model), float32_logits=False)
    assert torch.bfloat16 in {result for _, result in seen}
    seen.clear()
    whole, of_whole = evaluated(copy.deepcopy(model), float32_logits=True)
    monkeypatch.setitem(token_scores._CHUNK_ELEMENTS, "cpu", 4 * VOCABULARY)
    chunks, of_chunks = evaluated(copy.deepcopy(model), float32_logits=True)
    assert set(seen) == {(torch.float32, torch.float32)}
    torch.testing.assert_close(chunks.logprobs, whole.logprobs, atol=1e-6, rtol=1e-6)
    assert of_whole.keys() == of_chunks.keys()
    for name, gradient in of_whole.items():
        torch.testing.assert_close(
            of_chunks[name], gradient, atol=2e-2 * float(gradient.abs().max()), rtol=0.0, msg=name
        )
    closer = (whole.logprobs - exact.logprobs).abs().mean()
    assert closer < (usual.logprobs - exact.logprobs).abs().mean()


def test_a_model_in_16_bits_has_logits_of_float32() -> None:
    model = tiny().to(torch.bfloat16)
    tokens = torch.tensor([[3, 1, 4, 1, 5]])
    with torch.no_grad():
        hidden = model.model(tokens).last_hidden_state
        assert model(tokens).logits.dtype == torch.bfloat16
        use_float32_logits(model)
        logits = model(tokens).logits
    assert logits.dtype == torch.float32
    assert torch.equal(logits, hidden.float() @ model.lm_head.weight.float().t())
