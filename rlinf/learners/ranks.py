"""Adding up the gradients of a learner's data-parallel ranks."""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import Tensor, nn

# Gradients travel in pieces of so many elements: one message would double the memory, one per parameter the latency.
_BUCKET_ELEMENTS = 1 << 24


def sum_gradients(parameters: Iterable[nn.Parameter], size: int) -> None:
    """Adds the gradients of all ranks in place (a rank that saw no row adds zeros)."""
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    for parameter in trained:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
    if size == 1:
        return
    for bucket in _buckets([parameter.grad for parameter in trained if parameter.grad is not None]):
        flat = torch.cat([gradient.reshape(-1) for gradient in bucket])
        dist.all_reduce(flat)
        for gradient, piece in zip(bucket, flat.split([g.numel() for g in bucket]), strict=True):
            gradient.copy_(piece.view_as(gradient))


def _buckets(tensors: list[Tensor]) -> list[list[Tensor]]:
    buckets: list[list[Tensor]] = [[]]
    size = 0
    for tensor in tensors:
        if buckets[-1] and size + tensor.numel() > _BUCKET_ELEMENTS:
            buckets.append([])
            size = 0
        buckets[-1].append(tensor)
        size += tensor.numel()
    return buckets
