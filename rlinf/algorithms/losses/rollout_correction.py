"""Correction for a sampler whose log-probabilities are not quite the trainer's (Yao et al. 2025, "Your efficient RL
framework secretly brings you off-policy RL training"; Liu et al. 2025 for the sequence level)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Self

import torch
from torch import Tensor

from rlinf.algorithms.losses.inputs import LossInputs, exp_clamped


@dataclass(frozen=True)
class RolloutCorrection:
    """How ``exp(old - rollout_logp)`` weighs the policy loss."""

    level: Literal["token", "sequence"] = "token"
    mode: Literal["truncate", "mask"] = "truncate"
    cap: float = 2.0

    def __post_init__(self) -> None:
        if self.level not in ("token", "sequence"):
            raise ValueError(f"rollout_correction.level must be token or sequence, got {self.level!r}")
        if self.mode not in ("truncate", "mask"):
            raise ValueError(f"rollout_correction.mode must be truncate or mask, got {self.mode!r}")

    @classmethod
    def of(cls, option: RolloutCorrection | Mapping[str, object] | None) -> Self | RolloutCorrection | None:
        """From ``{level, mode, cap}``; null or ``level: none`` is no correction, an unknown key a TypeError.

        >>> RolloutCorrection.of({"level": "sequence"})
        RolloutCorrection(level='sequence', mode='truncate', cap=2.0)
        """
        if option is None or isinstance(option, RolloutCorrection):
            return option
        unknown = set(option) - {"level", "mode", "cap"}
        if unknown:
            raise TypeError(
                f"rollout_correction does not know {', '.join(sorted(unknown))}; it reads: cap, level, mode"
            )
        if option.get("level") == "none":
            return None
        return cls(**option)  # type: ignore[arg-type]


def correction_weight(x: LossInputs, correction: RolloutCorrection) -> Tensor:
    """The weight of every slot [B, T], without gradient. Sequence level: the product over the row's true slots. Above
    ``cap`` it is ``cap`` (truncate) or 0 (mask).

    old - rollout = log 2 and log 1.5, sequence: 3, over the cap of 2:

    >>> x = LossInputs.clean(torch.ones(1, 2).bool(), logprobs=torch.zeros(1, 2), old_logprobs=torch.tensor([[2.,
    ...     1.5]]).log(),
    ...                      advantages=torch.ones(1, 2), rollout_logprobs=torch.zeros(1, 2))
    >>> correction_weight(x, RolloutCorrection("token")), correction_weight(x, RolloutCorrection("sequence", "mask"))
    (tensor([[2.0000, 1.5000]]), tensor([[0., 0.]]))
    """
    if x.rollout_logprobs is None:
        raise ValueError("rollout_correction weighs by the sampler's log-probabilities: give rollout_logprobs")
    difference = (x.old_logprobs - x.rollout_logprobs).detach()
    if correction.level == "sequence":
        difference = difference.sum(dim=1, keepdim=True).expand_as(difference)
    weight = exp_clamped(difference)
    if correction.mode == "truncate":
        return weight.clamp(max=correction.cap)
    return torch.where(weight > correction.cap, 0.0, weight)
