"""CISPO (MiniMax-M1, arXiv:2506.13585)."""

from __future__ import annotations

from rlinf.algorithms.clip_range import PPO_CLIP, Clip
from rlinf.algorithms.objective import LossInputs, TokenLoss


def cispo(
    x: LossInputs,
    *,
    clip: Clip = PPO_CLIP,
) -> TokenLoss:
    """``-sg(clip(rho, 1-lo, 1+hi)) A logp`` [B, T]: the clip bounds the weight, never the gradient of a position.

    logp = -1, old = -2 -> rho = 2.718, clipped to 1.2:

    >>> import torch
    >>> x = LossInputs.clean(torch.ones(1, 1, dtype=torch.bool), logprobs=torch.tensor([[-1.]]),
    ...     old_logprobs=torch.tensor([[-2.]]),
    ...                      advantages=torch.tensor([[1.]]))
    >>> cispo(x).policy
    tensor([[1.2000]])
    """
    ratio = x.ratio.detach()
    metrics = {"clip_fraction_low": ratio < 1 - clip.low, "clip_fraction_high": ratio > 1 + clip.high}
    return TokenLoss(-ratio.clamp(1 - clip.low, 1 + clip.high) * x.advantages * x.logprobs, metrics=metrics)
