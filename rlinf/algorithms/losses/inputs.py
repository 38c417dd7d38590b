"""The inputs and the result of a loss."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from rlinf.algorithms.kl import LOG_RATIO_LIMIT


def exp_clamped(log_ratio: Tensor) -> Tensor:
    """``exp`` of a log-ratio clamped to +-20.

    >>> exp_clamped(torch.tensor([0.0, float("inf")])).log()
    tensor([ 0., 20.])
    """
    return log_ratio.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp()


@dataclass(frozen=True)
class LossInputs:
    """Columns [B, T] of some whole rows, float32, with 0 wherever ``mask`` is false (see :meth:`clean`)."""

    logprobs: Tensor
    """Under the current weights, with gradient."""
    old_logprobs: Tensor
    """The proximal policy's: what the ratio is taken against."""
    advantages: Tensor
    mask: Tensor
    """bool."""
    whole: bool = False
    """Every position is true, so there is nothing to hide: most of the cost of small minibatches is in hiding
    nothing."""
    rollout_logprobs: Tensor | None = None
    """The behaviour policy's, as the sampler reported them."""
    values: Tensor | None = None
    """Under the current weights, with gradient."""
    old_values: Tensor | None = None
    returns: Tensor | None = None
    selected: Tensor | None = None
    """bool: the positions that a covariance loss treats apart."""

    @classmethod
    def clean(cls, mask: Tensor, **columns: Tensor | None) -> LossInputs:
        """The same columns with zeros under a false mask, whatever stood there (NaN, -inf), and no gradient into it."""
        whole = bool(mask.all())
        hidden = None if whole else mask
        cleaned: dict[str, Any] = {name: None if c is None else zeroed(c, hidden) for name, c in columns.items()}
        return cls(mask=mask, whole=whole, **cleaned)

    def only_true(self, column: Tensor) -> Tensor:
        """``column`` [B, T] with 0 under a false mask; as it is where there is no such position."""
        return column if self.whole else torch.where(self.mask, column, 0.0)

    @functools.cached_property
    def log_ratio(self) -> Tensor:
        """logp - old, not clamped."""
        return self.logprobs - self.old_logprobs

    @functools.cached_property
    def ratio(self) -> Tensor:
        """rho = exp(logp - old)."""
        return exp_clamped(self.log_ratio)


def zeroed(column: Tensor, mask: Tensor | None) -> Tensor:
    """``column`` [B, T] with 0 (False) wherever ``mask`` is false (None: nowhere); floating columns become float32.

    >>> zeroed(torch.tensor([[1.0, float("nan")]]), torch.tensor([[True, False]]))
    tensor([[1., 0.]])
    """
    if mask is None:
        return column if column.dtype == torch.bool else column.float()
    if column.dtype == torch.bool:
        return column & mask
    return torch.where(mask, column.float(), 0.0)


def row_mean(values: Tensor, mask: Tensor) -> Tensor:
    """The mean over the valid positions of each row [B, 1]; 0 for an empty row. ``values`` are 0 under a false mask.

    >>> row_mean(torch.tensor([[1., 3., 0.]]), torch.tensor([[True, True, False]]))
    tensor([[2.]])
    """
    return values.sum(dim=1, keepdim=True) / mask.sum(dim=1, keepdim=True).clamp(min=1)


@dataclass(frozen=True)
class TokenLoss:
    """Per-position losses [B, T], before weights and aggregation. What stands under a false mask is not read."""

    policy: Tensor
    value: Tensor | None = None
    metrics: Mapping[str, Tensor] = field(default_factory=dict)
    """Per-position facts [B, T], reported as their mean over valid positions."""
