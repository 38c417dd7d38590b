"""Tapered Off-Policy REINFORCE (Le Roux et al., arXiv:2503.14286)."""

from __future__ import annotations

import torch

from rlinf.algorithms.objective import LossInputs, TokenLoss


def topr(x: LossInputs) -> TokenLoss:
    """Compute ``-A logp`` where A > 0, ``-sg(clip(rho, 0, 1)) A logp`` elsewhere, [B, T].

    logp = -1, old = 0 -> rho = 0.3679 for the bad one:

    >>> x = LossInputs.clean(torch.ones(1, 2, dtype=torch.bool), logprobs=-torch.ones(1, 2),
    ...     old_logprobs=torch.zeros(1, 2),
    ...                      advantages=torch.tensor([[1., -1.]]))
    >>> topr(x).policy
    tensor([[ 1.0000, -0.3679]])
    """
    tapered = x.ratio.detach().clamp(0.0, 1.0)
    weight = torch.where(x.advantages > 0, torch.ones_like(tapered), tapered)
    return TokenLoss(-weight * x.advantages * x.logprobs, metrics={"taper_weight": weight})
