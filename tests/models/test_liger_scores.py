"""Log-probabilities by Liger Kernel against plain autograd over whole logits; its package is not needed for all."""

from __future__ import annotations

import copy
import sys
from types import ModuleType
from typing import Any

import pytest
import torch
from language_models import VOCABULARY, conversation, tiny
from torch import Tensor, nn

from rlinf.data.messages import SamplingParams
from rlinf.models.causal_lm import CausalLMPolicy
from rlinf.models.liger_scores import liger_covers, liger_logprobs

WIDTH, POSITIONS = 16, 23
SAMPLINGS = [SamplingParams(max_new_tokens=9, temperature=temperature) for temperature in (1.0, 0.6, 0.0)]
MODULE = "liger_kernel.chunked_loss.fused_linear_ppo"


class Reference:
    """The signature of Liger 0.8.5; whole logits."""

    calls = 0

    @staticmethod
    def chunk_forward(
        input_chunk: Tensor,
        weight: Tensor,
        selected_token_ids: Tensor,
        bias: Tensor | None = None,
        temperature: float = 1.0,
    ) -> Tensor:
        Reference.calls += 1
        logits = nn.functional.linear(input_chunk, weight.to(input_chunk.dtype), bias).float() / temperature
        return logits.log_softmax(-1).gather(-1, selected_token_ids[..., None])[..., 0]


@pytest.fixture
def reference(monkeypatch: pytest.MonkeyPatch) -> type[Reference]:
    parts = MODULE.split(".")
    for i in range(1, len(parts) + 1):
        monkeypatch.setitem(sys.modules, ".".join(parts[:i]), ModuleType(parts[i - 1]))
    monkeypatch.setattr(sys.modules[MODULE], "LigerFusedLinearPPOBase", Reference, raising=False)
    Reference.calls = 0
    return Reference


@pytest.fixture(params=["reference", "installed"])
def either(request: pytest.FixtureRequest) -> None:
    """The reference, and the package if it is installed: this part of it is plain PyTorch, which runs on a CPU."""
    if request.param == "reference":
        request.getfixturevalue("reference")
    else:
        pytest.importorskip(MODULE, reason="needs liger-kernel (extra liger)")


@pytest.mark.usefixtures("either")
@pytest.mark.parametrize("sampling", SAMPLINGS, ids=lambda sampling: f"at{sampling.temperature}")
@pytest.mark.parametrize("bias", [True, False])
def test_values_and_gradients_are_those_of_whole_logits(sampling: SamplingParams, bias: bool) -> None:
    torch.manual_seed(0)
    head = nn.Linear(WIDTH, VOCABULARY, bias=bias)
    nn.init.normal_(head.weight)
    hidden = torch.randn(POSITIONS, WIDTH, requires_grad=True)
    tokens = torch.randint(VOCABULARY, (POSITIONS,))
    weights = torch.randn(POSITIONS)
    found = liger_logprobs(hidden, head, tokens, sampling)
    whole = (head(hidden).double() / (sampling.temperature or 1.0)).log_softmax(-1).gather(-1, tokens[:, None])[:, 0]
    torch.testing.assert_close(found.double(), whole, atol=2e-5, rtol=1e-5)
    leaves = (hidden, *head.parameters())
    of_found = torch.autograd.grad((found * weights).sum(), leaves)
    of_whole = torch.autograd.grad((whole * weights).sum(), leaves)
    for one, other in zip(of_found, of_whole, strict=True):
        torch.testing.assert_close(one, other, atol=2e-5, rtol=1e-4)


@pytest.mark.usefixtures("either")
@pytest.mark.parametrize("autocast", [None, torch.bfloat16], ids=["float32", "bfloat16"])
def test_a_policy_scores_its_responses_with_it(autocast: torch.dtype | None) -> None:
    model = tiny()
    inputs, actions, mask = conversation()
    plain = CausalLMPolicy(copy.deepcopy(model), sampling=SAMPLINGS[1], autocast=autocast)
    fused = CausalLMPolicy(model, sampling=SAMPLINGS[1], autocast=autocast, liger=True)
    results = [policy.evaluate(inputs, actions, mask, with_entropy=False).logprobs for policy in (plain, fused)]
    bound = 1e-5 if autocast is None else 2e-2
    torch.testing.assert_close(*results, atol=bound, rtol=bound)
    gradients = []
    for policy, logprobs in zip((plain, fused), results, strict=True):
        logprobs.sum().backward()  # type: ignore[no-untyped-call]
        gradients.append({name: weight.grad for name, weight in policy.model.named_parameters()})
    for name, gradient in gradients[0].items():
        difference = (gradient - gradients[1][name]).norm() / gradient.norm().clamp_min(1e-6)
        assert difference < 10 * bound, name


def test_what_it_does_not_compute_is_left_to_the_plain_path(reference: Any) -> None:
    inputs, actions, mask = conversation()
    policy = CausalLMPolicy(tiny(), sampling=SAMPLINGS[0], liger=True)
    policy.evaluate(inputs, actions, mask, with_entropy=False)
    assert reference.calls == 1
    assert policy.evaluate(inputs, actions, mask).entropy is not None
    filtered = CausalLMPolicy(tiny(), sampling=SamplingParams(max_new_tokens=9, top_k=3), liger=True)
    filtered.evaluate(inputs, actions, mask, with_entropy=False)
    assert reference.calls == 1
    head = nn.Linear(4, 8)
    assert liger_covers(head, SAMPLINGS[0])
    assert not liger_covers(nn.Sequential(head), SAMPLINGS[0])
