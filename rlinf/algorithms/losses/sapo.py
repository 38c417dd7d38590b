"""Soft Adaptive Policy Optimization (Gao et al., arXiv:2511.20347)."""

from __future__ import annotations

import torch

from rlinf.algorithms.objective import LossInputs, TokenLoss


def sapo(x: LossInputs, *, sapo_tau_positive: float = 1.0, sapo_tau_negative: float = 1.05) -> TokenLoss:
    """Compute ``-A sigmoid(tau (rho - 1)) 4 / tau`` [B, T], tau = ``sapo_tau_positive`` where A > 0, else the other.

    At rho = 1 the gradient is that of ``-A rho``; away from it the gate closes smoothly. rho = 1, tau = 1 -> gate
    2:

    >>> one = torch.ones(1, 1)
    >>> sapo(LossInputs.clean(one.bool(), logprobs=one, old_logprobs=one, advantages=one)).policy
    tensor([[-2.]])
    """
    tau = torch.where(x.advantages > 0, sapo_tau_positive, sapo_tau_negative)
    gate = torch.sigmoid(tau * (x.ratio - 1)) * 4 / tau
    return TokenLoss(-x.advantages * gate, metrics={"gate": gate.detach()})
