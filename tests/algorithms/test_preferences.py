"""Bradley-Terry weights: the gradient that autograd finds for the loss of all pairs of a group."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional

from rlinf.algorithms.preferences import pair_weights, pairs_in_order

SCORES = torch.tensor([0.3, -1.0, 2.0, 0.5, 0.5, -0.2, 4.0])
WORTHS = torch.tensor([1.0, 0.0, 0.5, 1.0, 0.0, 0.0, 3.0])
GROUPS = torch.tensor([0, 0, 0, 1, 1, 1, 2])
PAIRS = [(0, 1), (0, 2), (2, 1), (3, 4), (3, 5)]
"""(better, worse); the last row has no other to be compared with."""


def test_the_weighted_score_has_the_gradient_of_the_loss() -> None:
    scores = SCORES.clone().requires_grad_()
    loss = torch.stack([-functional.logsigmoid(scores[one] - scores[other]) for one, other in PAIRS]).mean()
    (expected,) = torch.autograd.grad(loss, scores)
    weights = pair_weights(SCORES, WORTHS, GROUPS)
    torch.testing.assert_close((-weights / len(weights)).float(), expected)
    assert float(weights.sum()) == pytest.approx(0.0, abs=1e-12)


def test_pairs_in_order_counts_ties_half() -> None:
    assert pairs_in_order(SCORES, WORTHS, GROUPS) == pytest.approx((1 + 0 + 1 + 0.5 + 1) / 5)
    assert math.isnan(pairs_in_order(SCORES, torch.ones(7), GROUPS))
    assert pair_weights(SCORES, torch.ones(7), GROUPS).eq(0).all()
