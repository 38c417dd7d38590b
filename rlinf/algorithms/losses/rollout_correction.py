"""Correction for a sampler whose log-probabilities are not quite the learner's.

Yao et al. 2025, "Your efficient RL framework secretly brings you off-policy RL training" (truncated weights of tokens,
TIS); Liu et al. 2025, "When speed kills stability" (weights of sequences, masks, geometric means: MIS); Ling team 2025,
arXiv:2510.18855 (IcePop: a lower bound too).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, get_args, get_type_hints

import torch
from torch import Tensor

from rlinf.algorithms.catalog_corrections import CORRECTIONS
from rlinf.algorithms.kl import exp_clamped
from rlinf.schema.algorithm import RolloutCorrectionConfig


def correction_of(
    option: RolloutCorrectionConfig | Mapping[str, Any] | None,
) -> RolloutCorrectionConfig | None:
    """Read how ``exp(old - rollout_logp)`` weighs the policy loss; a mapping without a level weighs each token.

    Returns None for no correction: null, or ``level: none`` without ``reject_above``. An unknown key is a TypeError, a
    word that a key does not have a ValueError.

    >>> correction_of({"level": "sequence"}).cap
    2.0
    >>> icepop = correction_of({"preset": "icepop", "cap": 4.0})
    >>> icepop.level, icepop.mode, icepop.floor, icepop.cap
    ('token', 'mask', 0.5, 4.0)
    """
    if option is None:
        return None
    if isinstance(option, Mapping):
        names = sorted(item.name for item in fields(RolloutCorrectionConfig))
        unknown = sorted(set(option) - set(names))
        if unknown:
            raise TypeError(f"rollout_correction has no {', '.join(unknown)}; its keys are: {', '.join(names)}")
        # Refuse a word that a key of one of several words does not have.
        hints = get_type_hints(RolloutCorrectionConfig)
        for name in ("preset", "level", "mode", "reject_by"):
            words = get_args(hints[name])
            if name in option and option[name] not in words:
                raise ValueError(f"rollout_correction.{name} must be one of {', '.join(words)}, got {option[name]!r}")
        preset = CORRECTIONS.get(option.get("preset", "none"))
        rejects = option.get("reject_above") is not None
        start = {"level": "none" if rejects else "token"} if preset is None else preset.values
        option = RolloutCorrectionConfig(**{**start, **option})
    return None if option.level == "none" and option.reject_above is None else option


def correction_weight(
    old_logprobs: Tensor, rollout_logprobs: Tensor | None, mask: Tensor, correction: RolloutCorrectionConfig
) -> Tensor:
    """Compute the weight of every position [B, T], without gradient.

    The log-probabilities [B, T] are 0 where ``mask`` [B, T] bool is false. Rows are whole: the weight of a
    sequence is the product over its valid positions, ``geometric`` the geometric mean of these. A weight outside
    ``floor`` to ``cap`` is cut to the bound (truncate) or 0 (mask). A rejected row has weight 0 everywhere.

    old - rollout = log 2 and log 1.5: as a sequence 3, over the cap of 2; the geometric mean is sqrt(3):

    >>> old, rollout, mask = torch.tensor([[2., 1.5]]).log(), torch.zeros(1, 2), torch.ones(1, 2).bool()
    >>> def weight(**option): return correction_weight(old, rollout, mask, correction_of(option))
    >>> weight(), weight(level="sequence", mode="mask")
    (tensor([[2.0000, 1.5000]]), tensor([[0., 0.]]))
    >>> weight(level="geometric"), weight(level="token", mode="mask", floor=1.8, cap=5.0)
    (tensor([[1.7321, 1.7321]]), tensor([[2., 0.]]))

    k3 of the row: (2 - 1 - log 2 + 1.5 - 1 - log 1.5) / 2 = 0.2007; k1: |log 3| / 2 = 0.5493:

    >>> weight(reject_above=0.21), weight(reject_above=0.20), weight(reject_above=0.5, reject_by="k1")
    (tensor([[1., 1.]]), tensor([[0., 0.]]), tensor([[0., 0.]]))
    """
    if rollout_logprobs is None:
        raise ValueError("rollout_correction weighs by the sampler's log-probabilities: give rollout_logprobs")
    difference = (old_logprobs - rollout_logprobs).detach()
    weight = _weight(difference, mask, correction)
    if correction.reject_above is None:
        return weight
    divergence = _row_divergence(difference, mask, correction.reject_by)
    return torch.where(divergence > correction.reject_above, 0.0, weight)


def _weight(difference: Tensor, mask: Tensor, correction: RolloutCorrectionConfig) -> Tensor:
    """Weigh by ``difference`` = old - rollout [B, T], between the bounds."""
    if correction.level == "none":
        return torch.ones_like(difference)
    if correction.level != "token":
        total = difference.sum(dim=1, keepdim=True)
        if correction.level == "geometric":
            total = total / mask.sum(dim=1, keepdim=True).clamp(min=1)
        difference = total.expand_as(difference)
    weight = exp_clamped(difference)
    if correction.mode == "truncate":
        return weight.clamp(min=correction.floor, max=correction.cap)
    outside = (weight > correction.cap) | (weight < correction.floor)
    return torch.where(outside, 0.0, weight)


def _row_divergence(difference: Tensor, mask: Tensor, estimate: str) -> Tensor:
    """Estimate KL(sampler || learner) per token of each row [B, 1] from ``difference`` = old - rollout [B, T].

    ``k1`` is the magnitude of the mean log-ratio, ``k3`` the mean of ``exp(d) - 1 - d`` (Schulman,
    http://joschu.net/blog/kl-approx.html).
    """
    count = mask.sum(dim=1, keepdim=True).clamp(min=1)
    if estimate == "k1":
        return difference.sum(dim=1, keepdim=True).abs() / count
    return (exp_clamped(difference) - 1 - difference).sum(dim=1, keepdim=True) / count
