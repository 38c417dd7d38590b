"""The clipped surrogate that several losses share."""

from __future__ import annotations

import torch
from torch import Tensor

from rlinf.algorithms.losses.inputs import SlotLoss


def clip_range(
    ratio_clip_eps: float, clip_ratio_low: float | None, clip_ratio_high: float | None
) -> tuple[float, float]:
    """``(lo, hi)``: each falls back to ``ratio_clip_eps``.

    >>> clip_range(0.2, None, 0.28)
    (0.2, 0.28)
    """
    low = ratio_clip_eps if clip_ratio_low is None else clip_ratio_low
    high = ratio_clip_eps if clip_ratio_high is None else clip_ratio_high
    return low, high


def clipped_surrogate(
    ratio: Tensor, advantages: Tensor, bounds: tuple[float, float], *, clip_ratio_c: float | None = None
) -> SlotLoss:
    """``max(-A rho, -A clip(rho, 1-lo, 1+hi))`` [B, T]; with the dual clip at most ``c |A|`` where A < 0.

    >>> clipped_surrogate(torch.tensor([1.5, 0.5, 9.0]), torch.tensor([1., -1., -1.]), (0.2, 0.2),
    ...     clip_ratio_c=3.0).policy
    tensor([-1.2000,  0.8000,  3.0000])
    """
    low, high = bounds
    plain = -advantages * ratio
    clipped = -advantages * ratio.clamp(1 - low, 1 + high)
    loss = torch.maximum(plain, clipped)
    metrics = {
        "clip_fraction_low": (clipped > plain) & (ratio < 1 - low),
        "clip_fraction_high": (clipped > plain) & (ratio > 1 + high),
    }
    if clip_ratio_c is not None:
        bound = clip_ratio_c * advantages.abs()
        metrics["clip_fraction_dual"] = (advantages < 0) & (loss > bound)
        loss = torch.where(advantages < 0, torch.minimum(loss, bound), loss)
    return SlotLoss(loss, metrics=metrics)
