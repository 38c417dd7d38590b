"""Adding up the gradients of a learner's data-parallel ranks."""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import nn

from rlinf.portions import portions

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
    gradients = [parameter.grad for parameter in trained if parameter.grad is not None]
    for bucket in portions(((gradient, gradient.numel()) for gradient in gradients), _BUCKET_ELEMENTS):
        flat = torch.cat([gradient.reshape(-1) for gradient in bucket])
        dist.all_reduce(flat)
        for gradient, piece in zip(bucket, flat.split([g.numel() for g in bucket]), strict=True):
            gradient.copy_(piece.view_as(gradient))
