"""Regression of quantiles, for critics that learn the distribution of the return (arXiv:1710.10044)."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from rlinf.models.off_policy.layers import quantile_fractions


def quantile_huber_loss(quantiles: Tensor, samples: Tensor) -> Tensor:
    """Compute the quantile Huber loss [...] of ``quantiles`` [..., Q] against ``samples`` [..., K] of the distribution.

    The mean over both of ``|tau_q - 1(u < 0)| huber(u)`` with ``u = sample - quantile`` and Huber's bound 1
    (Dabney et al., arXiv:1710.10044, equation 10, whose sum over quantiles is a mean here).

    One quantile, tau = 1/2, at 0, and samples 0.5 and -3: 0.5 (0.125 + 2.5) / 2

    >>> quantile_huber_loss(torch.tensor([0.0]), torch.tensor([0.5, -3.0]))
    tensor(0.6562)
    """
    errors = samples[..., None, :] - quantiles[..., :, None]
    huber = functional.huber_loss(errors, torch.zeros_like(errors), reduction="none")
    fractions = quantile_fractions(quantiles.shape[-1]).to(quantiles)[:, None]
    weights = (fractions - (errors.detach() < 0).to(errors)).abs()
    return (weights * huber).mean(dim=(-2, -1))
