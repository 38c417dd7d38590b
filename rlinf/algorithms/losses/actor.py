"""PPO's clipped surrogate (Schulman et al., arXiv:1707.06347)."""

from __future__ import annotations

from rlinf.algorithms.clip_range import PPO_CLIP, Clip
from rlinf.algorithms.losses.clip import clipped_surrogate
from rlinf.algorithms.losses.inputs import LossInputs, TokenLoss


def actor(
    x: LossInputs,
    *,
    clip: Clip = PPO_CLIP,
) -> TokenLoss:
    """``max(-A rho, -A clip(rho, 1-lo, 1+hi))`` [B, T]; with the dual clip (arXiv:1912.09729) at most
    c |A| where A < 0.

    rho = 1.5, A = 1, eps = 0.2 -> -1.2:

    >>> import torch
    >>> mask = torch.ones(1, 1, dtype=torch.bool)
    >>> x = LossInputs.clean(mask, logprobs=torch.tensor([[1.5]]).log(), old_logprobs=torch.zeros(1, 1),
    ...     advantages=torch.ones(1, 1))
    >>> actor(x).policy
    tensor([[-1.2000]])
    """
    return clipped_surrogate(x.ratio, x.advantages, clip)
