"""From positions to a scalar. The weight of a position is fixed before the loss is: then every part of a batch simply
adds up.

>>> l = torch.tensor([[1., 2., 3.], [4., 5., 6.]])
>>> m = torch.tensor([[True, True, False], [True, False, False]])
>>> [round(float(aggregate(name, l, m, max_response_length=4)), 4) for name in catalog.AGGREGATIONS]
[2.3333, 3.5, 2.75, 0.875]
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch
from torch import Tensor

from rlinf.algorithms import catalog
from rlinf.base.user_code import imported
from rlinf.data.shards import LossCounts


@dataclass(frozen=True)
class BatchShape:
    """The extent of an optimiser step that weights are made of: its valid tokens and its rows."""

    mask: Tensor
    """[B, T] bool."""
    tokens: float
    """Valid tokens of the step, at least 1."""
    rows: float
    """Rows with at least one valid token, at least 1."""
    max_response_length: int | None
    divide_by_rows: bool

    @functools.cached_property
    def lengths(self) -> Tensor:
        """[B, 1] valid tokens of each row, at least 1."""
        return self.mask.sum(dim=1, keepdim=True).clamp(min=1).double()


def token_mean(shape: BatchShape) -> float:
    """``1 / sum(m)``; like the others the weight of the valid tokens of each row: [B, 1], or one for all."""
    return 1.0 / shape.tokens


def seq_mean_token_sum(shape: BatchShape) -> float:
    """``1 / N``."""
    return 1.0 / shape.rows


def seq_mean_token_mean(shape: BatchShape) -> Tensor:
    """``1 / (N l)``."""
    return 1.0 / (shape.lengths * shape.rows)


def seq_mean_token_sum_norm(shape: BatchShape) -> float:
    """``1 / (N C)``, or ``1 / C`` if ``sum_norm_divide_by_batch`` is false."""
    if shape.max_response_length is None:
        raise ValueError("loss_agg_func seq-mean-token-sum-norm divides by max_response_length: give it")
    return 1.0 / shape.max_response_length / (shape.rows if shape.divide_by_rows else 1.0)


def token_weights(
    loss_agg_func: str,
    mask: Tensor,
    *,
    max_response_length: int | None = None,
    sum_norm_divide_by_batch: bool = True,
    shared: int = 1,
    counts: LossCounts | None = None,
    environment: Tensor | None = None,
) -> Tensor:
    """Compute the weight of every position [B, T] float32: the loss is ``(per_token * weights).sum()``.

    The weight is 0 under a false mask. ``mask`` [B, T] is that of the whole optimiser step, or of some of its
    rows with the ``counts`` of all: the weights are the same, bit for bit. An empty batch has weights 0.

    With ``environment`` [B, T] the weights are of its true positions instead: each has what a valid one of its row has.

    With ``shared`` every ``shared`` consecutive positions are the parts of one. It has its own weight among its
    likes and gives each of its valid parts the same share of it. The mean of a column that the parts share is
    what it would be without parts.

    >>> token_weights("seq-mean-token-mean", torch.tensor([[True, True], [True, False]]))
    tensor([[0.2500, 0.2500],
            [0.5000, 0.0000]])
    >>> token_weights("token-mean", torch.tensor([[True, True, True, False]]), shared=2)
    tensor([[0.2500, 0.2500, 0.5000, 0.0000]])
    >>> acted = torch.tensor([[True, False, True]])
    >>> token_weights("token-mean", acted, environment=~acted)
    tensor([[0.0000, 0.5000, 0.0000]])
    """
    if shared > 1:
        parts = mask.unflatten(1, (-1, shared))
        whole = token_weights(
            loss_agg_func,
            parts.any(dim=2),
            max_response_length=max_response_length,
            sum_norm_divide_by_batch=sum_norm_divide_by_batch,
            counts=counts,
        )
        return ((whole / parts.sum(dim=2).clamp(min=1))[..., None] * parts).flatten(1)
    entry = catalog.choose("loss_agg_func", loss_agg_func, catalog.AGGREGATIONS)
    counts = counts or LossCounts.of(mask.sum(dim=1))
    shape = BatchShape(
        mask=mask,
        tokens=counts.tokens,
        rows=counts.rows,
        max_response_length=max_response_length,
        divide_by_rows=sum_norm_divide_by_batch,
    )
    return (imported(entry.function)(shape) * (mask if environment is None else environment)).float()


def aggregate(
    loss_agg_func: str,
    values: Tensor,
    mask: Tensor,
    *,
    max_response_length: int | None = None,
    sum_norm_divide_by_batch: bool = True,
) -> Tensor:
    """Compute the scalar of a whole minibatch; ``values`` [B, T] are not read where ``mask`` [B, T] is false."""
    weights = token_weights(
        loss_agg_func,
        mask,
        max_response_length=max_response_length,
        sum_norm_divide_by_batch=sum_norm_divide_by_batch,
    )
    return (torch.where(mask, values, 0.0) * weights).sum()
