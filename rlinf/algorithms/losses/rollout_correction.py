"""Correction for a sampler whose log-probabilities are not quite the trainer's (Yao et al. 2025, "Your efficient RL
framework secretly brings you off-policy RL training"; Liu et al. 2025 for the sequence level)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from rlinf.algorithms.kl import exp_clamped
from rlinf.schema.algorithm import RolloutCorrectionConfig


def correction_of(
    option: RolloutCorrectionConfig | Mapping[str, Any] | None,
) -> RolloutCorrectionConfig | None:
    """How ``exp(old - rollout_logp)`` weighs the policy loss: from ``{level, mode, cap}``, by default of each token.

    Null or ``level: none`` is no correction; an unknown key is a TypeError, another word for level or mode a
    ValueError.

    >>> correction_of({"level": "sequence"})
    RolloutCorrectionConfig(level='sequence', mode='truncate', cap=2.0)
    """
    if option is None:
        return None
    if isinstance(option, Mapping):
        unknown = set(option) - {"level", "mode", "cap"}
        if unknown:
            raise TypeError(
                f"rollout_correction does not know {', '.join(sorted(unknown))}; it reads: cap, level, mode"
            )
        option = RolloutCorrectionConfig(**{"level": "token", **option})
    if option.level not in ("none", "token", "sequence"):
        raise ValueError(f"rollout_correction.level must be token or sequence, got {option.level!r}")
    if option.mode not in ("truncate", "mask"):
        raise ValueError(f"rollout_correction.mode must be truncate or mask, got {option.mode!r}")
    return None if option.level == "none" else option


def correction_weight(
    old_logprobs: Tensor, rollout_logprobs: Tensor | None, correction: RolloutCorrectionConfig
) -> Tensor:
    """The weight of every position [B, T], without gradient; the columns are 0 under a false mask.

    Sequence level: the product over the row's valid positions. Above ``cap`` it is ``cap`` (truncate) or 0 (mask).

    old - rollout = log 2 and log 1.5, sequence: 3, over the cap of 2:

    >>> old, rollout = torch.tensor([[2., 1.5]]).log(), torch.zeros(1, 2)
    >>> masked = correction_of({"level": "sequence", "mode": "mask"})
    >>> correction_weight(old, rollout, correction_of({})), correction_weight(old, rollout, masked)
    (tensor([[2.0000, 1.5000]]), tensor([[0., 0.]]))
    """
    if rollout_logprobs is None:
        raise ValueError("rollout_correction weighs by the sampler's log-probabilities: give rollout_logprobs")
    difference = (old_logprobs - rollout_logprobs).detach()
    if correction.level == "sequence":
        difference = difference.sum(dim=1, keepdim=True).expand_as(difference)
    weight = exp_clamped(difference)
    if correction.mode == "truncate":
        return weight.clamp(max=correction.cap)
    return torch.where(weight > correction.cap, 0.0, weight)
