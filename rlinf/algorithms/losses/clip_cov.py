"""Clip-Cov: no gradient on a few slots of high covariance (Cui et al., arXiv:2505.22617)."""

from __future__ import annotations

import torch

from rlinf.algorithms.losses.clip import clip_range, clipped_surrogate
from rlinf.algorithms.losses.inputs import LossInputs, SlotLoss


def clip_cov(
    x: LossInputs,
    *,
    ratio_clip_eps: float = 0.2,
    clip_ratio_low: float | None = None,
    clip_ratio_high: float | None = None,
) -> SlotLoss:
    """``actor``, with 0 on the ``selected`` slots (see ``covariance.in_band``), [B, T].

    >>> one = torch.ones(1, 2)
    >>> x = LossInputs.clean(one.bool(), logprobs=one, old_logprobs=one, advantages=one,
    ...     selected=torch.tensor([[True, False]]))
    >>> clip_cov(x).policy
    tensor([[ 0., -1.]])
    """
    if x.selected is None:
        raise ValueError("loss_type clip_cov leaves out the selected slots: give them (Objective.select)")
    surrogate = clipped_surrogate(x.ratio, x.advantages, clip_range(ratio_clip_eps, clip_ratio_low, clip_ratio_high))
    policy = torch.where(x.selected, 0.0, surrogate.policy)
    return SlotLoss(policy, metrics={**surrogate.metrics, "selected_fraction": x.selected})
