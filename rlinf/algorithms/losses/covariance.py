"""Which positions drive the entropy down: the covariance of log-probability and advantage.

The method is that of Cui et al., arXiv:2505.22617.

The choice is made once for an optimiser step, over its whole minibatch, from the log-probabilities before the
step and the advantages: so micro-batches and ranks never change it. (The paper takes the current
log-probabilities; in the first step on a batch they are the same.) The paper draws tokens at random; the draw
here is a hash of the token's own log-probability. It needs no random stream and picks the same tokens in any
order, except that of tokens with equal log-probabilities the first ones are taken.
"""

from __future__ import annotations

import torch
from torch import Tensor


def covariance(logprobs: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    """``(logp - mean logp) (A - mean A)`` [B, T] float64, means over the valid tokens; 0 elsewhere.

    >>> covariance(torch.tensor([[1., 3.]]), torch.tensor([[0., 2.]]), torch.tensor([[True, True]]))
    tensor([[1., 1.]], dtype=torch.float64)
    """
    count = mask.sum().double().clamp(min=1)
    product = mask.double()
    for column in (logprobs, advantages):
        clean = torch.where(mask, column.detach().double(), 0.0)
        product = product * (clean - clean.sum() / count)
    return product


def _lowest(keys: Tensor, eligible: Tensor, share: float, mask: Tensor) -> Tensor:
    """Select the eligible positions [B, T] with the lowest keys; of equal keys the first ones.

    They are at most ``share`` of all valid positions, and at least one of them."""
    chosen = torch.zeros_like(mask)
    if share > 0:
        requested = max(1, int(share * float(mask.sum().double())))
        # Many tokens of a sure policy have log-probability 0: without a limit each of them would be chosen.
        order = keys[eligible].argsort(stable=True)[:requested]
        chosen[tuple(eligible.nonzero()[order].T)] = True
    return chosen


def in_band(
    logprobs: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    cov_ratio: float = 0.0002,
    cov_lower_bound: float = 1.0,
    cov_upper_bound: float = 5.0,
) -> Tensor:
    """bool [B, T]: ``cov_ratio`` of all valid positions, drawn from those with ``lb < covariance < ub``.

    >>> in_band(torch.tensor([[-4., 0.]]), torch.tensor([[-1., 1.]]), torch.ones(1, 2).bool(),
    ...     cov_ratio=1.0).tolist()
    [[True, True]]
    """
    cov = covariance(logprobs, advantages, mask)
    draw = (logprobs.detach().double().abs() * 7919.7).frac()
    return _lowest(draw, mask & (cov > cov_lower_bound) & (cov < cov_upper_bound), cov_ratio, mask)


def highest(logprobs: Tensor, advantages: Tensor, mask: Tensor, *, cov_ratio: float = 0.0002) -> Tensor:
    """bool [B, T]: the ``cov_ratio`` of all valid positions with the highest covariance.

    >>> highest(torch.tensor([[-4., 0., -1.]]), torch.tensor([[-1., 0., 1.]]), torch.ones(1, 3).bool(),
    ...     cov_ratio=0.4).tolist()
    [[True, False, False]]
    """
    return _lowest(-covariance(logprobs, advantages, mask), mask, cov_ratio, mask)
