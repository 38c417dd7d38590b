"""On-policy distillation: its gradient is that of the exact reverse KL, and it mixes with other estimators."""

from __future__ import annotations

import pytest
import torch

from rlinf.algorithms import compute_advantages, policy_loss


def columns(tokens):
    """One row of one position for each token."""
    return {
        "rewards": torch.zeros(tokens),
        "mask": torch.ones(tokens, 1, dtype=torch.bool),
        "group_ids": torch.zeros(tokens, dtype=torch.int64),
    }


@pytest.mark.parametrize("loss_type", ["actor", "reinforce"])
def test_the_expected_gradient_is_that_of_the_exact_reverse_kl(loss_type):
    """Every token of a vocabulary of five, each as often as the policy samples it."""
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(5, generator=generator, dtype=torch.float64, requires_grad=True)
    teacher = torch.randn(5, generator=generator, dtype=torch.float64).log_softmax(0)
    logprobs = logits.log_softmax(0)
    exact = (logprobs.exp() * (logprobs - teacher)).sum()
    (expected,) = torch.autograd.grad(exact, logits, retain_graph=True)

    found = compute_advantages(
        "opd", **columns(5), logprobs=logprobs.detach()[:, None], teacher_logprobs=teacher[:, None]
    ).advantages
    gradient = torch.zeros(5, dtype=torch.float64)
    for token in range(5):
        one = logits.log_softmax(0)[token].reshape(1, 1)
        loss, _ = policy_loss(
            loss_type,
            logprobs=one,
            old_logprobs=one.detach(),
            advantages=found[token : token + 1],
            mask=torch.ones(1, 1, dtype=torch.bool),
        )
        (part,) = torch.autograd.grad(loss, logits)
        gradient += logprobs.detach().exp()[token] * part
    torch.testing.assert_close(gradient, expected, rtol=1e-5, atol=1e-6)


def test_the_teacher_is_added_behind_the_group_and_not_divided_by_it():
    own, teacher = torch.tensor([[-1.0], [-2.0]]), torch.tensor([[-3.0], [-1.0]])
    given = {**columns(2), "rewards": torch.tensor([1.0, 0.0]), "logprobs": own}
    alone = compute_advantages("grpo", **given).advantages
    mixed = compute_advantages("grpo", **given, teacher_logprobs=teacher, opd_coef=0.5).advantages
    torch.testing.assert_close(mixed - alone, 0.5 * (teacher - own))
    # A group of one reward, which GRPO learns nothing from, still learns from the teacher.
    same = {**given, "rewards": torch.ones(2)}
    found = compute_advantages("grpo", **same, teacher_logprobs=teacher, opd_coef=0.5).advantages
    torch.testing.assert_close(found, 0.5 * (teacher - own))
    clipped = compute_advantages("grpo", **same, teacher_logprobs=teacher, opd_coef=0.5, advantage_clip=0.25).advantages
    assert clipped.flatten().tolist() == [-0.25, 0.25]


def test_a_coefficient_without_a_teacher_is_an_error():
    with pytest.raises(ValueError, match="needs logprobs and teacher_logprobs"):
        compute_advantages("raw", **columns(2), opd_coef=0.1)
