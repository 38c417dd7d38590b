"""DPO as advantages: the published formula, and the gradient that autograd finds for it."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from rlinf.algorithms.dpo import dpo

MASK = torch.tensor([[True, True, False], [True, True, True], [True, False, False], [True, True, False]])
OWN = torch.tensor([[-0.5, -1.0, -9.0], [-2.0, -0.25, -1.5], [-0.75, 0.0, 0.0], [-1.0, -1.0, 7.0]])
REFERENCE = torch.tensor([[-1.0, -1.5, 3.0], [-1.0, -0.5, -1.0], [-1.0, 0.0, 0.0], [-0.5, -0.5, 0.0]])


def test_golden_vectors() -> None:
    """Worked by hand: gains 1.0, -1.25, 0.25, -1.0, margins 0.1 (1 + 1.25) and 0.1 (0.25 + 1)."""
    found = dpo(OWN, REFERENCE, MASK, beta=0.1)
    assert found.margins.tolist() == pytest.approx([0.225, 0.125])
    assert found.loss == pytest.approx((0.5869592 + 0.6326011) / 2, abs=1e-6)
    assert found.accuracy == 1.0
    # eight tokens, two pairs: 0.1 sigmoid(-margin) 8 / 2
    pulls = [0.4 * 0.4439861, 0.4 * 0.4687906]
    assert found.advantages[:, 0].tolist() == pytest.approx([pulls[0], -pulls[0], pulls[1], -pulls[1]], abs=1e-6)
    assert found.advantages[~MASK].eq(0).all()


@pytest.mark.parametrize("imitation", [0.0, 0.5])
def test_the_policy_gradient_is_that_of_the_loss(imitation: float) -> None:
    own = OWN.clone().requires_grad_()
    gains = torch.where(MASK, own - REFERENCE, 0.0).sum(dim=1)
    cross_entropy = -(torch.where(MASK, own, 0.0).sum(dim=1) / MASK.sum(dim=1))[::2].mean()
    loss = -functional.logsigmoid(0.3 * (gains[::2] - gains[1::2])).mean() + imitation * cross_entropy
    (expected,) = torch.autograd.grad(loss, own)
    made = dpo(OWN, REFERENCE, MASK, beta=0.3, imitation=imitation)
    assert made.loss == pytest.approx(float(loss), abs=1e-6)
    surrogate = (-made.advantages * own)[MASK].mean()
    (found,) = torch.autograd.grad(surrogate, own)
    torch.testing.assert_close(found, expected)


def test_a_chosen_answer_without_a_token_gives_no_gradient_and_no_infinity() -> None:
    mask = MASK.clone()
    mask[0] = False
    found = dpo(OWN, REFERENCE, mask, beta=0.1, imitation=0.5)
    assert found.loss < 10
    assert found.advantages.isfinite().all()
    assert found.advantages[0].eq(0).all()
