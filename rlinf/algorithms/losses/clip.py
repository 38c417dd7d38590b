"""The clip range, and the clipped surrogate that several losses share."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from rlinf.algorithms.losses.inputs import TokenLoss


@dataclass(frozen=True)
class Clip:
    """The range ``[1 - low, 1 + high]`` of the ratio that is rewarded; ``dual`` c bounds the loss by c |A| where A < 0
    (Ye et al., arXiv:1912.09729), None not at all."""

    low: float
    high: float
    dual: float | None = None

    @classmethod
    def of(
        cls,
        ratio_clip_eps: float = 0.2,
        clip_ratio_low: float | None = None,
        clip_ratio_high: float | None = None,
        clip_ratio_c: float | None = None,
    ) -> Clip:
        """From the options of the configuration: each bound falls back to ``ratio_clip_eps``.

        >>> Clip.of(clip_ratio_high=0.28)
        Clip(low=0.2, high=0.28, dual=None)
        """
        low = ratio_clip_eps if clip_ratio_low is None else clip_ratio_low
        high = ratio_clip_eps if clip_ratio_high is None else clip_ratio_high
        return cls(low, high, clip_ratio_c)


PPO_CLIP = Clip.of()
"""The range of the paper: 0.2 on either side."""


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
