"""The clipped surrogate that several losses share."""

from __future__ import annotations

import torch
from torch import Tensor

from rlinf.algorithms.clip_range import Clip
from rlinf.algorithms.losses.inputs import TokenLoss


def clipped_surrogate(ratio: Tensor, advantages: Tensor, clip: Clip) -> TokenLoss:
    """``max(-A rho, -A clip(rho, 1-lo, 1+hi))`` [B, T]; with the dual clip at most ``c |A|`` where A < 0.

    >>> clipped_surrogate(torch.tensor([1.5, 0.5, 9.0]), torch.tensor([1., -1., -1.]), Clip(0.2, 0.2, dual=3.0)).policy
    tensor([-1.2000,  0.8000,  3.0000])
    """
    plain = -advantages * ratio
    clipped = -advantages * ratio.clamp(1 - clip.low, 1 + clip.high)
    loss = torch.maximum(plain, clipped)
    metrics = {
        "clip_fraction_low": (clipped > plain) & (ratio < 1 - clip.low),
        "clip_fraction_high": (clipped > plain) & (ratio > 1 + clip.high),
    }
    if clip.dual is not None:
        bound = clip.dual * advantages.abs()
        metrics["clip_fraction_dual"] = (advantages < 0) & (loss > bound)
        loss = torch.where(advantages < 0, torch.minimum(loss, bound), loss)
    return TokenLoss(loss, metrics=metrics)
