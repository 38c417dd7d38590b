"""Statistics over the mask and over groups, wherever in the batch a row stands. All in float64."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from rlinf.data.advantage_spec import MeanStd
from rlinf.data.batch import Batch

EPS = 1e-6
"""Added to a standard deviation before it divides."""

SingletonGroup = Literal["error", "zero", "raw"]
"""What becomes of a row that is alone in its group."""

_log = logging.getLogger(__name__)

_AT_ONCE = 1 << 18
"""Numbers that are summed up together."""


@dataclass(frozen=True)
class GroupStatistics:
    """For each of N entries the numbers of the group it belongs to; float64 [N], ``constant`` bool [N]."""

    mean: Tensor
    std: Tensor
    count: Tensor
    low: Tensor
    high: Tensor

    @property
    def constant(self) -> Tensor:
        return self.low == self.high


def group_statistics(values: Tensor, group_ids: Tensor, *, ddof: int = 1) -> GroupStatistics:
    """Mean, standard deviation and size of the group of each entry.

    ``values`` [N] floating, ``group_ids`` [N] int64. Groups may be uneven and shuffled. A constant group has exactly
    its value as mean and exactly 0 as deviation, and so has a group with no more than ``ddof`` entries.

    >>> group_statistics(torch.tensor([1., 0., 0., 1.]), torch.tensor([7, 7, 3, 7])).mean
    tensor([0.6667, 0.6667, 0.0000, 0.6667], dtype=torch.float64)
    """
    values = values.detach().double()
    names, index = torch.unique(group_ids, return_inverse=True)
    blank = values.new_zeros(len(names))
    count = blank.index_add(0, index, torch.ones_like(values))
    low = blank.scatter_reduce(0, index, values, "amin", include_self=False)
    high = blank.scatter_reduce(0, index, values, "amax", include_self=False)
    mean = torch.where(low == high, low, blank.index_add(0, index, values) / count)
    squares = blank.index_add(0, index, (values - mean[index]) ** 2)
    std = torch.where(count > ddof, squares / (count - ddof).clamp(min=1), blank).sqrt()
    return GroupStatistics(mean[index], std[index], count[index], low[index], high[index])


def settle_singletons(
    values: Tensor,
    raw: Tensor,
    group_ids: Tensor,
    singleton_group: SingletonGroup,
    *,
    present: Tensor | None = None,
    size: Tensor | None = None,
) -> Tensor:
    """Return ``values`` [B] or [B, T], with the rows that are alone in their group treated by ``singleton_group``.

    ``error``: a ValueError that names them; ``zero``: 0; ``raw``: what stands in ``raw`` (as ``values``). Rows
    that are not ``present`` bool [B] are left as they are. ``size`` [B]: of each row's group, if some of it is
    elsewhere.

    >>> settle_singletons(torch.zeros(3), torch.ones(3), torch.tensor([4, 5, 5]), "raw")
    tensor([1., 0., 0.])
    """
    if singleton_group not in ("error", "zero", "raw"):
        raise ValueError(f"singleton_group must be error, zero or raw, got {singleton_group!r}")
    if size is None:
        size = group_statistics(torch.zeros_like(group_ids, dtype=torch.float64), group_ids).count
    alone = size == 1 if present is None else (size == 1) & present
    if singleton_group == "error" and bool(alone.any()):
        named = sorted(set(group_ids[alone].tolist()))[:5]
        raise ValueError(
            f"groups of one row have nothing to be compared with (group_ids {named}): "
            "set group_size above 1, or singleton_group to zero or raw"
        )
    instead = raw if singleton_group == "raw" else torch.zeros_like(raw)
    return torch.where(alone.view(-1, *[1] * (values.ndim - 1)), instead, values)


def masked_mean(values: Tensor, mask: Tensor, of: Callable[[Tensor], Tensor] = Tensor.detach) -> float:
    """Compute the mean of ``of(values)`` [N, ...] where ``mask`` is true, summed in float64; 0 if it nowhere is.

    >>> masked_mean(torch.tensor([[1, 2, 9]]), torch.tensor([[True, True, False]]))
    1.5
    """
    count = float(mask.sum())
    # A copy in float64 would be twice as large as the column: some rows at a time it stays in the cache.
    size = max(1, _AT_ONCE // max(1, values[0].numel())) if len(values) else 1
    parts = zip(values.split(size), mask.split(size), strict=True)
    total = sum(float(torch.where(valid, of(part), 0.0).sum(dtype=torch.float64)) for part, valid in parts)
    return total / count if count else 0.0


def row_sums(values: Tensor) -> Tensor:
    """[B, T] -> [B]: the same bits for any other rows in the tensor, and with any number of threads.

    >>> row_sums(torch.tensor([[1., 2.], [3., 4.]]))
    tensor([3., 7.])
    """
    return torch.from_numpy(np.add.reduce(values.detach().cpu().numpy(), axis=1)).to(values.device)


def gaps(batch: Batch, logprobs: Tensor) -> Tensor:
    """[B, 2] float64: over the fresh positions of each row the distance between ``logprobs`` [B, T] and those that its
    sampler reported, summed up; and the number of these positions."""
    fresh = batch.mask if batch.fresh is None else batch.fresh
    distance = torch.where(fresh, (logprobs - batch.rollout_logprobs).abs(), 0.0)
    return torch.stack([row_sums(distance.double()), fresh.sum(dim=1).double()], dim=1)


def row_moments(values: Tensor, mask: Tensor) -> Tensor:
    """[B, 3] float64: the number of a row's valid tokens, their sum, and their squared distances from its mean.

    >>> row_moments(torch.tensor([[1., 3., 99.]]), torch.tensor([[True, True, False]]))
    tensor([[2., 4., 2.]], dtype=torch.float64)
    """
    clean = torch.where(mask, values.double(), 0.0)
    count, total = mask.sum(dim=1).double(), row_sums(clean)
    centred = torch.where(mask, clean - (total / count.clamp(min=1.0))[:, None], 0.0)
    return torch.stack([count, total, row_sums(centred**2)], dim=1)


def moments_of(rows: Tensor) -> MeanStd:
    """Compute the moments of a whole batch from those of its rows [B, 3], in their order.

    With one valid token or none there is nothing to compare with: a warning is logged, and whitening changes
    nothing.
    """
    count, total, squares = row_sums(rows.T).tolist()
    if count <= 1:
        _log.warning("whitening was skipped: the batch has %d valid tokens", int(count))
        return MeanStd(0.0, 1.0)
    mean = total / count
    between = rows[:, 0] * (rows[:, 1] / rows[:, 0].clamp(min=1.0) - mean) ** 2
    variance = (squares + float(row_sums(between[None]))) / (count - 1)
    return MeanStd(mean, math.sqrt(variance + 1e-8))


def whiten(values: Tensor, mask: Tensor, moments: MeanStd | None = None) -> Tensor:
    """``(x - mean) / sqrt(var + 1e-8)`` over the valid tokens, unbiased variance, 0 elsewhere.

    ``values`` and ``mask`` [B, T]. ``moments`` are those of a batch that these rows are part of; None: they are all of
    it. See :func:`moments_of` for batches that have nothing to compare.

    >>> whiten(torch.tensor([[1., 3., 99.]]), torch.tensor([[True, True, False]]))
    tensor([[-0.7071,  0.7071,  0.0000]], dtype=torch.float64)
    """
    moments = moments_of(row_moments(values, mask)) if moments is None else moments
    return torch.where(mask, values.double() - moments.mean, 0.0) / moments.scale
