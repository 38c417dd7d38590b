"""Log-probabilities and entropies in chunks against plain autograd over whole logits, in values and gradients."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from language_models import VOCABULARY, conversation, tiny
from torch import Tensor, nn

from rlinf.data.messages import PolicyOutput, SamplingParams
from rlinf.models import token_scores as module
from rlinf.models.causal_lm import CausalLMPolicy
from rlinf.models.distribution import processed_logits
from rlinf.models.loading import add_lora
from rlinf.models.token_scores import token_scores

WIDTH, POSITIONS = 16, 23
SAMPLINGS = {
    "plain": SamplingParams(max_new_tokens=1),
    "warm": SamplingParams(max_new_tokens=1, temperature=0.6),
    "greedy": SamplingParams(max_new_tokens=1, temperature=0.0),
    "top_k": SamplingParams(max_new_tokens=1, top_k=5),
    "nucleus": SamplingParams(max_new_tokens=1, top_p=0.8, temperature=1.3),
}


@pytest.fixture(params=[1, 4, 1000], ids=lambda rows: f"rows{rows}")
def chunks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Rows of a chunk: one, some with a rest, all at once."""
    monkeypatch.setitem(module._CHUNK_ELEMENTS, "cpu", request.param * VOCABULARY)
    return int(request.param)


def whole(
    hidden: Tensor, head: nn.Linear, tokens: Tensor, sampling: SamplingParams, *, with_entropy: bool
) -> tuple[Tensor, Tensor]:
    """The same in float64 from whole logits, by plain autograd."""
    scores = hidden.double() @ head.weight.double().t()
    if head.bias is not None:
        scores = scores + head.bias.double()
    kept = torch.isfinite(processed_logits(scores.float(), sampling, chosen=tokens))
    scores = (scores / (sampling.temperature or 1.0)).masked_fill(~kept, -torch.inf)
    logs = scores.log_softmax(-1)
    entropies = -(logs.exp() * logs.masked_fill(~kept, 0.0)).sum(-1) * with_entropy
    return logs.gather(-1, tokens[:, None])[:, 0], entropies


def gradients(scored: tuple[Tensor, Tensor], *leaves: Tensor) -> list[Tensor]:
    """Of a loss in which every position has a weight of its own for both results."""
    generator = torch.Generator().manual_seed(2)
    weights = torch.randn(2, POSITIONS, generator=generator, dtype=torch.float64)
    loss = sum((result.double() * weight).sum() for result, weight in zip(scored, weights, strict=True))
    assert isinstance(loss, Tensor)
    return list(torch.autograd.grad(loss, leaves))


@pytest.mark.parametrize("name", SAMPLINGS)
@pytest.mark.parametrize(("bias", "with_entropy"), [(True, True), (False, False)])
@pytest.mark.usefixtures("chunks")
def test_values_and_gradients_are_those_of_whole_logits(name: str, bias: bool, with_entropy: bool) -> None:
    torch.manual_seed(0)
    head = nn.Linear(WIDTH, VOCABULARY, bias=bias)
    nn.init.normal_(head.weight)
    hidden = torch.randn(POSITIONS, WIDTH, requires_grad=True)
    tokens = torch.randint(VOCABULARY, (POSITIONS,))
    found = token_scores(hidden, head, tokens, SAMPLINGS[name], with_entropy=with_entropy)
    expected = whole(hidden, head, tokens, SAMPLINGS[name], with_entropy=with_entropy)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one.double(), other, atol=2e-5, rtol=1e-5)
    leaves = (hidden, *head.parameters())
    for one, other in zip(gradients(found, *leaves), gradients(expected, *leaves), strict=True):
        torch.testing.assert_close(one, other, atol=2e-5, rtol=1e-4)


def test_a_frozen_head_gets_no_gradient() -> None:
    head = nn.Linear(WIDTH, VOCABULARY).requires_grad_(False)
    hidden = torch.randn(POSITIONS, WIDTH, requires_grad=True)
    logprobs, _ = token_scores(
        hidden, head, torch.zeros(POSITIONS, dtype=torch.int64), SAMPLINGS["plain"], with_entropy=False
    )
    logprobs.sum().backward()
    assert head.weight.grad is None
    assert hidden.grad is not None


def test_bfloat16_products_keep_float32_results() -> None:
    """In bfloat16 the values are those of bfloat16 logits; normalisers, entropies and sums over chunks are float32."""
    torch.manual_seed(0)
    head = nn.Linear(WIDTH, VOCABULARY, bias=False)
    hidden = torch.randn(POSITIONS, WIDTH, requires_grad=True)
    tokens = torch.randint(VOCABULARY, (POSITIONS,))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = token_scores(hidden, head, tokens, SAMPLINGS["plain"], with_entropy=True)
        logits = head(hidden)
    assert {result.dtype for result in found} == {torch.float32}
    expected = logits.float().log_softmax(-1).gather(-1, tokens[:, None])[:, 0]
    torch.testing.assert_close(found[0], expected, atol=1e-5, rtol=1e-5)
    exact = gradients(whole(hidden, head, tokens, SAMPLINGS["plain"], with_entropy=True), hidden, head.weight)
    for one, other in zip(gradients(found, hidden, head.weight), exact, strict=True):
        assert one.dtype == torch.float32
        assert float((one - other).norm() / other.norm()) < 0.02


def test_float32_logits_have_bfloat16_gradients_under_autocast() -> None:
    """Values are those of float32 products to the bit; only products with the gradient are bfloat16."""
    torch.manual_seed(0)
    head = nn.Linear(WIDTH, VOCABULARY, bias=False)
    hidden = torch.randn(POSITIONS, WIDTH, requires_grad=True)
    tokens = torch.randint(VOCABULARY, (POSITIONS,))
    plain = token_scores(hidden, head, tokens, SAMPLINGS["plain"], with_entropy=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = token_scores(hidden, head, tokens, SAMPLINGS["plain"], with_entropy=True, dtype=torch.float32)
    assert [torch.equal(one, other) for one, other in zip(found, plain, strict=True)] == [True, True]
    for one, other in zip(gradients(found, hidden, head.weight), gradients(plain, hidden, head.weight), strict=True):
        assert one.dtype == torch.float32
        assert 0 < float((one - other).norm() / other.norm()) < 0.01


def test_kept_logits_give_the_same_bits_as_new_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """In every backward pass of the same forward pass: the first one overwrites what was kept."""
    torch.manual_seed(0)
    head = nn.Linear(WIDTH, VOCABULARY)
    hidden = torch.randn(POSITIONS, WIDTH, requires_grad=True)
    tokens = torch.randint(VOCABULARY, (POSITIONS,))
    monkeypatch.setitem(module._CHUNK_ELEMENTS, "cpu", 4 * VOCABULARY)

    def twice(limit: int) -> list[Tensor]:
        monkeypatch.setitem(module._KEPT_ELEMENTS, "cpu", limit)
        logprobs, entropies = token_scores(hidden, head, tokens, SAMPLINGS["nucleus"], with_entropy=True)
        loss = (logprobs**2 + 0.3 * entropies).sum()
        results = [logprobs, entropies]
        for _ in range(2):
            results += torch.autograd.grad(loss, (hidden, *head.parameters()), retain_graph=True)
        return results

    again = twice(limit=0)
    for kept, new in zip(twice(limit=POSITIONS * VOCABULARY), again, strict=True):
        assert torch.equal(kept, new)


def _gradients_of(policy: CausalLMPolicy, output: PolicyOutput) -> dict[str, Tensor]:
    assert output.entropy is not None
    (output.logprobs**2 + 0.3 * output.entropy).sum().backward()
    return {name: p.grad for name, p in policy.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("kind", ["tied", "untied", "lora", "padded"])
def test_a_policy_evaluates_and_learns_the_same_in_chunks(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model: Any = tiny("llama" if kind == "untied" else "qwen2")
    if kind == "lora":
        model = add_lora(model, rank=2, alpha=4, dropout=0.0, target_modules=["q_proj", "v_proj"], seed=0)
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                nn.init.normal_(parameter, std=0.1)
    policy = CausalLMPolicy(model, sampling=SAMPLINGS["warm"], pack_rows=kind != "padded")
    cut = CausalLMPolicy(copy.deepcopy(model), sampling=SAMPLINGS["warm"], pack_rows=kind != "padded")
    inputs, actions, mask = conversation()
    expected = policy.evaluate(inputs, actions, mask)
    monkeypatch.setitem(module._CHUNK_ELEMENTS, "cpu", 4 * VOCABULARY)
    found = cut.evaluate(inputs, actions, mask)
    torch.testing.assert_close(found.logprobs, expected.logprobs, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(found.entropy, expected.entropy, atol=1e-5, rtol=1e-5)
    one, other = _gradients_of(cut, found), _gradients_of(policy, expected)
    assert one.keys() == other.keys()
    for name, gradient in one.items():
        torch.testing.assert_close(gradient, other[name], atol=2e-5, rtol=1e-4, msg=name)


@pytest.mark.parametrize(("limit", "passes"), [(0, 2), (1000 * VOCABULARY, 1)])
def test_whole_logits_are_never_made(limit: int, passes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """No linear layer computes more rows of logits than a chunk has; those that are kept are made once."""
    rows: list[int] = []
    plain = nn.functional.linear

    def linear(inputs: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        if weight.shape[0] == VOCABULARY:
            rows.append(inputs.shape[0])
        return plain(inputs, weight, bias)

    monkeypatch.setattr(nn.functional, "linear", linear)
    monkeypatch.setitem(module._CHUNK_ELEMENTS, "cpu", 4 * VOCABULARY)
    monkeypatch.setitem(module._KEPT_ELEMENTS, "cpu", limit)
    inputs, actions, mask = conversation()
    output = CausalLMPolicy(tiny(), sampling=SAMPLINGS["plain"]).evaluate(inputs, actions, mask)
    output.logprobs.sum().backward()
    assert max(rows) == 4
    assert sum(rows) == passes * int(mask.sum())
