"""PPO's clipped surrogate (Schulman et al., arXiv:1707.06347), which several losses share."""

from __future__ import annotations

import torch
from torch import Tensor

from rlinf.algorithms.clip_range import PPO_CLIP, Clip
from rlinf.algorithms.objective import LossInputs, TokenLoss


def actor(x: LossInputs, *, clip: Clip = PPO_CLIP) -> TokenLoss:
    """:func:`clipped_surrogate` of the ratio, token by token [B, T].

    rho = 1.5, A = 1, eps = 0.2 -> -1.2:

    >>> import torch
    >>> mask = torch.ones(1, 1, dtype=torch.bool)
    >>> x = LossInputs.clean(mask, logprobs=torch.tensor([[1.5]]).log(), old_logprobs=torch.zeros(1, 1),
    ...     advantages=torch.ones(1, 1))
    >>> actor(x).policy
    tensor([[-1.2000]])
    """
    return clipped_surrogate(x.ratio, x.advantages, clip)


def clipped_surrogate(ratio: Tensor, advantages: Tensor, clip: Clip) -> TokenLoss:
    """Compute ``max(-A rho, -A clip(rho, 1-lo, 1+hi))`` [B, T].

    With the dual clip (arXiv:1912.09729) it is at most ``c |A|`` where A < 0.

    >>> clipped_surrogate(torch.tensor([1.5, 0.5, 9.0]), torch.tensor([1., -1., -1.]), Clip(0.2, 0.2, dual=3.0)).policy
    tensor([-1.2000,  0.8000,  3.0000])
    """
    costs = -advantages
    plain = costs * ratio
    with torch.no_grad():  # where the clip decides there is no gradient
        clipped = costs * ratio.clamp(1 - clip.low, 1 + clip.high)
        decided = clipped > plain
        metrics = {
            "clip_fraction_low": decided & (ratio < 1 - clip.low),
            "clip_fraction_high": decided & (ratio > 1 + clip.high),
        }
    loss = torch.where(decided, clipped, plain)
    if clip.dual is not None:
        bound = clip.dual * advantages.abs()
        metrics["clip_fraction_dual"] = (advantages < 0) & (loss > bound)
        loss = torch.where(advantages < 0, torch.minimum(loss, bound), loss)
    return TokenLoss(loss, metrics=metrics)
