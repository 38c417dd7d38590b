"""Tensors of a learner's ranks: shards and wholes, sums of the gradients and metrics of data-parallel ranks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn

from rlinf.algorithms.metrics import PartialMetrics, ReducedMetrics
from rlinf.data.split import split_by_size

# Gradients travel in pieces of this many elements: one message would double the memory, one per parameter the latency.
_BUCKET_ELEMENTS = 1 << 24


class Ranks:
    """The processes that hold parts of one batch: here a single one. Methods are called on all, in the same order."""

    def sum(self, tensor: Tensor) -> Tensor:
        """Elementwise sum over the ranks; same shape and dtype everywhere."""
        return tensor

    def gather(self, tensor: Tensor) -> Tensor:
        """Concatenate the entries of all ranks along dimension 0; their numbers of entries may differ."""
        return tensor


ONE_RANK = Ranks()


class TorchRanks(Ranks):
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


# A DTensor has both methods. Importing that class takes 2 CPU-seconds, which learners without shards are spared.
def own_shard(tensor: Tensor) -> Tensor:
    """Return this rank's part of a tensor that may be split over ranks (FSDP)."""
    own = getattr(tensor, "to_local", None)
    return tensor if own is None else own()


def whole_tensor(tensor: Tensor) -> Tensor:
    """Return the whole of a tensor that may be split over ranks; all of them must take part."""
    whole = getattr(tensor, "full_tensor", None)
    return tensor if whole is None else whole()


def complete_gradients(parameters: Iterable[nn.Parameter]) -> None:
    """Set a gradient of 0 if no row has given one: momentum and weight decay move every weight at every step."""
    for parameter in parameters:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)


def sum_gradients(parameters: Iterable[nn.Parameter], size: int) -> None:
    """Replace each gradient by its sum over all ranks (a rank that saw no row adds zeros)."""
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    complete_gradients(trained)
    if size == 1:
        return
    gradients = [parameter.grad for parameter in trained if parameter.grad is not None]
    for bucket in split_by_size(((gradient, gradient.numel()) for gradient in gradients), _BUCKET_ELEMENTS):
        flat = torch.cat([gradient.reshape(-1) for gradient in bucket])
        dist.all_reduce(flat)
        for gradient, piece in zip(bucket, flat.split([g.numel() for g in bucket]), strict=True):
            gradient.copy_(piece.view_as(gradient))


def reduce_metrics(parts: Iterable[PartialMetrics], *, ranks: Ranks = ONE_RANK) -> ReducedMetrics:
    """Sum over micro-batches, then over ranks (which must all have the same names).

    Names travel together, in one message for the sums and one for the maxima.

    >>> one = (torch.tensor(3.), torch.tensor(2.))
    >>> reduce_metrics([{"x": one, "r_max": one}, {"x": one}])
    {'x': (6.0, 4.0), 'r_max': (3.0, 2.0)}
    """
    merged: PartialMetrics = {}
    for part in parts:
        for name, (value, count) in part.items():
            if name not in merged:
                merged[name] = (value, count)
            elif name.endswith("_max"):
                merged[name] = (torch.maximum(merged[name][0], value), torch.maximum(merged[name][1], count))
            else:
                merged[name] = (merged[name][0] + value, merged[name][1] + count)
    if ranks is ONE_RANK:
        counts: dict[int, float] = {}  # most names have theirs in common: each is read once
        for _, count in merged.values():
            if id(count) not in counts:
                counts[id(count)] = float(count)
        return {name: (float(value), counts[id(count)]) for name, (value, count) in merged.items()}
    maxima = [name for name in merged if name.endswith("_max")]
    sums = [name for name in merged if not name.endswith("_max")]
    results: ReducedMetrics = {}
    if sums:
        results |= zip(sums, ranks.sum(_packed(merged, sums)).tolist(), strict=True)
    if maxima:
        results |= zip(maxima, ranks.gather(_packed(merged, maxima)[None]).amax(0).tolist(), strict=True)
    return {name: (results[name][0], results[name][1]) for name in merged}


def _packed(partial: PartialMetrics, names: Sequence[str]) -> Tensor:
    """[names, 2] float64."""
    return torch.stack([number.double() for name in names for number in partial[name]]).view(-1, 2)
