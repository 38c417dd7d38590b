"""Geometric-Mean Policy Optimization (Zhao et al., arXiv:2507.20673)."""

from __future__ import annotations

import torch

from rlinf.algorithms.clip_range import PPO_CLIP, Clip
from rlinf.algorithms.kl import exp_clamped
from rlinf.algorithms.objective import LossInputs, TokenLoss


def gmpo(
    x: LossInputs,
    *,
    clip: Clip = PPO_CLIP,
) -> TokenLoss:
    """Compute ``-A g`` [B, T] with g the geometric mean over the row's valid positions of the clipped ratios.

    The clip is in log space, as in the paper: a log-ratio is at most ``hi`` where A > 0 and at least ``-lo``
    where A < 0. The gradient of a position's loss reaches all positions of the row. Rows must be whole. (The
    paper's range is 0.4.)

    log-ratios 0.2 and 1.0, hi = 0.4 -> g = exp(0.3) = 1.3499:

    >>> x = LossInputs.clean(torch.ones(1, 2, dtype=torch.bool), logprobs=torch.tensor([[.2, 1.]]),
    ...     old_logprobs=torch.zeros(1, 2),
    ...                      advantages=torch.ones(1, 2))
    >>> gmpo(x, clip=Clip(0.4, 0.4)).policy
    tensor([[-1.3499, -1.3499]])
    """
    log_ratio = x.log_ratio
    clipped = torch.where(x.advantages > 0, log_ratio.clamp(max=clip.high), log_ratio.clamp(min=-clip.low))
    mean = x.row_mean(clipped)
    metrics = {"clip_fraction_low": clipped > log_ratio, "clip_fraction_high": clipped < log_ratio}
    return TokenLoss(-x.advantages * exp_clamped(mean), metrics=metrics)
