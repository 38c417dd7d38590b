"""Clip-Cov: no gradient on a few positions of high covariance (Cui et al., arXiv:2505.22617)."""

from __future__ import annotations

import torch

from rlinf.algorithms.clip_range import PPO_CLIP, Clip
from rlinf.algorithms.losses.actor import clipped_surrogate
from rlinf.algorithms.objective import LossInputs, TokenLoss


def clip_cov(
    x: LossInputs,
    *,
    clip: Clip = PPO_CLIP,
) -> TokenLoss:
    """``actor``, with 0 on the ``selected`` positions (see ``covariance.in_band``), [B, T].

    >>> one = torch.ones(1, 2)
    >>> x = LossInputs.clean(one.bool(), logprobs=one, old_logprobs=one, advantages=one,
    ...     selected=torch.tensor([[True, False]]))
    >>> clip_cov(x).policy
    tensor([[ 0., -1.]])
    """
    if x.selected is None:
        raise ValueError("loss_type clip_cov leaves out the selected positions: give them (Objective.select)")
    surrogate = clipped_surrogate(x.ratio, x.advantages, clip)
    policy = torch.where(x.selected, 0.0, surrogate.policy)
    return TokenLoss(policy, metrics={**surrogate.metrics, "selected_fraction": x.selected})
