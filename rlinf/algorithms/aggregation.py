"""From slots to a scalar. The weight of a slot is fixed before the loss is: then every part of a batch simply adds up.

>>> l = torch.tensor([[1., 2., 3.], [4., 5., 6.]])
>>> m = torch.tensor([[True, True, False], [True, False, False]])
>>> [round(float(aggregate(name, l, m, max_response_length=4)), 4) for name in AGGREGATIONS]
[2.3333, 3.5, 2.75, 0.875]
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from rlinf.algorithms import catalog
from rlinf.algorithms.statistics import ONE_RANK, Ranks


@dataclass(frozen=True)
class LossCounts:
    """What an optimiser step divides by; parts of the step add with ``+``."""

    slots: float
    """True slots."""
    sequences: float
    """Rows with at least one true slot."""

    @classmethod
    def of(cls, mask: Tensor) -> LossCounts:
        """The counts of ``mask`` [B, T].

        >>> LossCounts.of(torch.tensor([[True, True], [False, False]]))
        LossCounts(slots=2.0, sequences=1.0)
        """
        return cls(float(mask.sum()), float(mask.any(dim=1).sum()))

    def __add__(self, other: LossCounts) -> LossCounts:
        return LossCounts(self.slots + other.slots, self.sequences + other.sequences)

    def over(self, ranks: Ranks = ONE_RANK) -> LossCounts:
        """The sum over all ranks."""
        total = ranks.sum(torch.tensor([self.slots, self.sequences], dtype=torch.float64))
        return LossCounts(float(total[0]), float(total[1]))


@dataclass(frozen=True)
class _Shape:
    """What a row weight is made of."""

    lengths: Tensor
    """[B, 1] true slots of each row, at least 1."""
    slots: float
    sequences: float
    constant: float | None
    divide_by_batch: bool


def _sum_norm(shape: _Shape) -> Tensor:
    if shape.constant is None:
        raise ValueError("loss_agg_func seq-mean-token-sum-norm divides by max_response_length: give it")
    return torch.ones_like(shape.lengths) / shape.constant / (shape.sequences if shape.divide_by_batch else 1.0)


AGGREGATIONS: dict[str, Callable[[_Shape], Tensor]] = {
    "token-mean": lambda shape: torch.ones_like(shape.lengths) / shape.slots,
    "seq-mean-token-sum": lambda shape: torch.ones_like(shape.lengths) / shape.sequences,
    "seq-mean-token-mean": lambda shape: 1.0 / (shape.lengths * shape.sequences),
    "seq-mean-token-sum-norm": _sum_norm,
}
"""The weight [B, 1] of the true slots of each row."""


def slot_weights(
    loss_agg_func: str,
    mask: Tensor,
    *,
    max_response_length: int | None = None,
    sum_norm_divide_by_batch: bool = True,
    counts: LossCounts | None = None,
    shared: int = 1,
) -> Tensor:
    """The weight of every slot [B, T] float32: the loss is ``(per_slot * weights).sum()``; 0 under a false mask.

    ``counts`` are those of the optimiser step where ``mask`` [B, T] is only a part (a micro-batch, a rank) of it. An
    empty batch has weights 0. With ``shared`` each so many slots are the parts of one, which has its own weight among
    its likes and gives each of its true parts the same share of it: the mean of a column that the parts share is what
    it would be without parts.

    >>> slot_weights("seq-mean-token-mean", torch.tensor([[True, True], [True, False]]))
    tensor([[0.2500, 0.2500],
            [0.5000, 0.0000]])
    >>> slot_weights("token-mean", torch.tensor([[True, True, True, False]]), shared=2)
    tensor([[0.2500, 0.2500, 0.5000, 0.0000]])
    """
    if shared > 1:
        parts = mask.unflatten(1, (-1, shared))
        whole = slot_weights(
            loss_agg_func,
            parts.any(dim=2),
            max_response_length=max_response_length,
            sum_norm_divide_by_batch=sum_norm_divide_by_batch,
            counts=counts,
        )
        return ((whole / parts.sum(dim=2).clamp(min=1))[..., None] * parts).flatten(1)
    catalog.choose("loss_agg_func", loss_agg_func, catalog.AGGREGATIONS)
    counts = counts or LossCounts.of(mask)
    shape = _Shape(
        lengths=mask.sum(dim=1, keepdim=True).clamp(min=1).double(),
        slots=max(counts.slots, 1.0),
        sequences=max(counts.sequences, 1.0),
        constant=max_response_length,
        divide_by_batch=sum_norm_divide_by_batch,
    )
    return (AGGREGATIONS[loss_agg_func](shape) * mask).float()


def aggregate(
    loss_agg_func: str,
    values: Tensor,
    mask: Tensor,
    *,
    max_response_length: int | None = None,
    sum_norm_divide_by_batch: bool = True,
) -> Tensor:
    """The scalar of a whole minibatch; ``values`` [B, T] are not read where ``mask`` [B, T] is false."""
    weights = slot_weights(
        loss_agg_func,
        mask,
        max_response_length=max_response_length,
        sum_norm_divide_by_batch=sum_norm_divide_by_batch,
    )
    return (torch.where(mask, values, 0.0) * weights).sum()
