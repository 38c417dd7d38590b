"""Truncated importance sampling (Ionides 2008, doi:10.1198/106186008X320456)."""

from __future__ import annotations

from rlinf.algorithms.objective import LossInputs, TokenLoss


def tis(x: LossInputs, *, tis_cap: float = 2.0) -> TokenLoss:
    """``-sg(min(rho, tis_cap)) A logp`` [B, T].

    logp = -1, old = -2 -> rho = 2.718, cut to 2:

    >>> import torch
    >>> x = LossInputs.clean(torch.ones(1, 1, dtype=torch.bool), logprobs=torch.tensor([[-1.]]),
    ...     old_logprobs=torch.tensor([[-2.]]),
    ...                      advantages=torch.tensor([[1.]]))
    >>> tis(x).policy
    tensor([[2.]])
    """
    ratio = x.ratio.detach()
    weight = ratio.clamp(max=tis_cap)
    return TokenLoss(-weight * x.advantages * x.logprobs, metrics={"clip_fraction_high": ratio > tis_cap})
