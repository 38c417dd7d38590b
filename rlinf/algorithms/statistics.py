"""Statistics that do not depend on where a row sits: over the mask, over groups, over ranks. All in float64.

A function that needs numbers of all ranks takes a :class:`Ranks`. With the default, :data:`ONE_RANK`, the batch at
hand is all there is. The sums differ in the last bits between one rank and many (floating-point addition), no more.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
import torch.distributed as dist
from torch import Tensor

EPS = 1e-6
"""Added to a standard deviation before it divides."""

SingletonGroup = Literal["error", "zero", "raw"]
"""What becomes of a row that is alone in its group."""

_log = logging.getLogger(__name__)


class Ranks(Protocol):
    """The processes that hold parts of one batch. Every method is called on all of them, in the same order."""

    def sum(self, tensor: Tensor) -> Tensor:
        """Elementwise sum over the ranks; same shape and dtype everywhere."""

    def gather(self, tensor: Tensor) -> Tensor:
        """The entries of all ranks, concatenated along dimension 0, where their numbers may differ."""


class OneRank:
    """The whole batch is here."""

    def sum(self, tensor: Tensor) -> Tensor:
        return tensor

    def gather(self, tensor: Tensor) -> Tensor:
        return tensor


class TorchRanks:
    """The ranks of a ``torch.distributed`` process group (default: all); tensors travel on ``device``."""

    def __init__(self, group: dist.ProcessGroup | None = None, *, device: torch.device | str = "cpu") -> None:
        self.group = group
        self.device = torch.device(device)

    def sum(self, tensor: Tensor) -> Tensor:
        total = tensor.detach().to(self.device, copy=True)
        dist.all_reduce(total, group=self.group)
        return total.to(tensor.device)

    def gather(self, tensor: Tensor) -> Tensor:
        world = dist.get_world_size(self.group)
        here = torch.tensor([tensor.shape[0]], device=self.device)
        sizes = [torch.zeros_like(here) for _ in range(world)]
        dist.all_gather(sizes, here, group=self.group)
        longest = max(int(size) for size in sizes)
        padded = torch.zeros(longest, *tensor.shape[1:], dtype=tensor.dtype, device=self.device)
        padded[: tensor.shape[0]] = tensor.detach()
        parts = [torch.empty_like(padded) for _ in range(world)]
        dist.all_gather(parts, padded, group=self.group)
        return torch.cat([part[: int(size)] for part, size in zip(parts, sizes, strict=True)]).to(tensor.device)


ONE_RANK = OneRank()


def gather_names(names: Sequence[str], *, ranks: Ranks = ONE_RANK) -> list[str]:
    """The distinct names of all ranks, sorted; they travel as bytes and may not be longer than 64 of these.

    >>> gather_names(["math", "code", "math"])
    ['code', 'math']
    """
    width = 64
    here = sorted(set(names))
    rows = torch.zeros(len(here), width, dtype=torch.uint8)
    for row, name in zip(rows, here, strict=True):
        data = name.encode()
        if len(data) > width:
            raise ValueError(f"a name may have {width} bytes, and {name!r} has {len(data)}")
        row[: len(data)] = torch.tensor(list(data), dtype=torch.uint8)
    return sorted({bytes(row).rstrip(b"\0").decode() for row in ranks.gather(rows).tolist()})


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


def group_statistics(values: Tensor, group_ids: Tensor, *, ddof: int = 1, ranks: Ranks = ONE_RANK) -> GroupStatistics:
    """Mean, standard deviation and size of the group of each entry.

    ``values`` [N] floating, ``group_ids`` [N] int64. Groups may be uneven, shuffled, and split over ranks. A constant
    group has exactly its value as mean and exactly 0 as deviation, and so has a group with no more than ``ddof``
    entries.

    >>> group_statistics(torch.tensor([1., 0., 0., 1.]), torch.tensor([7, 7, 3, 7])).mean
    tensor([0.6667, 0.6667, 0.0000, 0.6667], dtype=torch.float64)
    """
    everything, all_ids = ranks.gather(values.detach().double()), ranks.gather(group_ids)
    names, index = torch.unique(all_ids, return_inverse=True)
    blank = everything.new_zeros(len(names))
    count = blank.index_add(0, index, torch.ones_like(everything))
    low = blank.scatter_reduce(0, index, everything, "amin", include_self=False)
    high = blank.scatter_reduce(0, index, everything, "amax", include_self=False)
    mean = torch.where(low == high, low, blank.index_add(0, index, everything) / count)
    squares = blank.index_add(0, index, (everything - mean[index]) ** 2)
    std = torch.where(count > ddof, squares / (count - ddof).clamp(min=1), blank).sqrt()
    here = torch.searchsorted(names, group_ids)
    return GroupStatistics(mean[here], std[here], count[here], low[here], high[here])


def settle_singletons(
    values: Tensor,
    raw: Tensor,
    group_ids: Tensor,
    singleton_group: SingletonGroup,
    *,
    present: Tensor | None = None,
    ranks: Ranks = ONE_RANK,
) -> Tensor:
    """``values`` [B] or [B, T], with the rows that are alone in their group treated as asked.

    ``error``: a ValueError that names them; ``zero``: 0; ``raw``: what stands in ``raw`` (as ``values``). Rows that
    are not ``present`` bool [B] are left as they are.

    >>> settle_singletons(torch.zeros(3), torch.ones(3), torch.tensor([4, 5, 5]), "raw")
    tensor([1., 0., 0.])
    """
    if singleton_group not in ("error", "zero", "raw"):
        raise ValueError(f"singleton_group must be error, zero or raw, got {singleton_group!r}")
    count = group_statistics(torch.zeros_like(group_ids, dtype=torch.float64), group_ids, ranks=ranks).count
    alone = count == 1 if present is None else (count == 1) & present
    if singleton_group == "error" and int(ranks.sum(alone.sum())):
        named = sorted(set(ranks.gather(group_ids[alone]).tolist()))[:5]
        raise ValueError(
            f"groups of one row have nothing to be compared with (group_ids {named}): "
            "set group_size above 1, or singleton_group to zero or raw"
        )
    instead = raw if singleton_group == "raw" else torch.zeros_like(raw)
    return torch.where(alone.view(-1, *[1] * (values.ndim - 1)), instead, values)


def whiten(values: Tensor, mask: Tensor, *, ranks: Ranks = ONE_RANK) -> Tensor:
    """``(x - mean) / sqrt(var + 1e-8)`` over the true slots of all ranks, unbiased variance, 0 elsewhere.

    ``values`` and ``mask`` [B, T]. With one true slot or fewer there is nothing to compare with: a warning is logged
    and the values come back as they are.

    >>> whiten(torch.tensor([[1., 3., 99.]]), torch.tensor([[True, True, False]]))
    tensor([[-0.7071,  0.7071,  0.0000]], dtype=torch.float64)
    """
    clean = torch.where(mask, values.double(), 0.0)
    count = ranks.sum(mask.sum().double())
    if count <= 1:
        _log.warning("whitening was skipped: the batch has %d true slots", int(count))
        return clean
    mean = ranks.sum(clean.sum()) / count
    centred = torch.where(mask, clean - mean, 0.0)
    variance = ranks.sum((centred**2).sum()) / (count - 1)
    return centred / (variance + 1e-8).sqrt()
