"""The scoring of tokens against PyTorch's own distributions, and the rules that make a CPU possible."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

pytestmark = pytest.mark.megatron


@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.0])
def test_scores_and_their_gradients(temperature: float) -> None:
    from rlinf.learners.megatron.vocabulary import score_tokens

    torch.manual_seed(0)
    logits = (3 * torch.randn(7, 24)).requires_grad_()
    tokens, weight = torch.randint(0, 21, (7,)), torch.randn(2, 7)
    logprobs, entropy = score_tokens(logits, tokens, vocabulary=21, temperature=temperature)
    (found,) = torch.autograd.grad((weight[0] * logprobs + weight[1] * entropy).sum(), logits)
    truth = torch.distributions.Categorical(logits=logits[:, :21] / (temperature or 1.0))
    loss = (weight[0] * truth.log_prob(tokens) + weight[1] * truth.entropy()).sum()
    (wanted,) = torch.autograd.grad(loss, logits)
    torch.testing.assert_close(logprobs, truth.log_prob(tokens))
    torch.testing.assert_close(entropy, truth.entropy())
    torch.testing.assert_close(found, wanted)


def test_every_rule_still_finds_its_text() -> None:
    from rlinf.learners.megatron import cpu

    # isort: split
    import megatron.core

    sources = [path.read_text(encoding="utf-8") for path in Path(megatron.core.__path__[0]).rglob("*.py")]
    rules = (*cpu.WITHOUT_CUDA, *cpu.WITHOUT_TRANSFORMER_ENGINE)
    assert [rule.name for rule in rules if not any(re.search(rule.pattern, source) for source in sources)] == []


def test_the_hook_does_nothing_where_it_is_not_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    from rlinf.learners.megatron import cpu

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(cpu.importlib.util, "find_spec", lambda name: object())
    assert cpu.rules() == ()
