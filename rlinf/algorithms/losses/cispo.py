"""CISPO (MiniMax-M1, arXiv:2506.13585)."""

from __future__ import annotations

from rlinf.algorithms.losses.clip import clip_range
from rlinf.algorithms.losses.inputs import LossInputs, SlotLoss


def cispo(
    x: LossInputs,
    *,
    ratio_clip_eps: float = 0.2,
    clip_ratio_low: float | None = None,
    clip_ratio_high: float | None = None,
) -> SlotLoss:
    """``-sg(clip(rho, 1-lo, 1+hi)) A logp`` [B, T]: the clip bounds the weight, never the gradient of a slot.

    logp = -1, old = -2 -> rho = 2.718, clipped to 1.2:

    >>> import torch
    >>> x = LossInputs.clean(torch.ones(1, 1, dtype=torch.bool), logprobs=torch.tensor([[-1.]]),
    ...     old_logprobs=torch.tensor([[-2.]]),
    ...                      advantages=torch.tensor([[1.]]))
    >>> cispo(x).policy
    tensor([[1.2000]])
    """
    low, high = clip_range(ratio_clip_eps, clip_ratio_low, clip_ratio_high)
    ratio = x.ratio.detach()
    metrics = {"clip_fraction_low": ratio < 1 - low, "clip_fraction_high": ratio > 1 + high}
    return SlotLoss(-ratio.clamp(1 - low, 1 + high) * x.advantages * x.logprobs, metrics=metrics)
