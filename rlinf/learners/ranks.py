"""The data-parallel ranks of a learner: joining them, and adding up their gradients."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor, nn

from rlinf.algorithms.statistics import ONE_RANK, Ranks, TorchRanks

# Gradients travel in pieces of so many elements: one message would double the memory, one per parameter the latency.
_BUCKET_ELEMENTS = 1 << 24


def join(
    *, rank: int, size: int, address: str | None, port: int | None, device: torch.device, timeout_s: float
) -> Ranks:
    """Starts the process group (gloo on CPU, NCCL on GPU) and returns its ranks; one rank needs none."""
    if size == 1:
        return ONE_RANK
    dist.init_process_group(
        "nccl" if device.type == "cuda" else "gloo",
        init_method=f"tcp://{address}:{port}",
        rank=rank,
        world_size=size,
        timeout=timedelta(seconds=timeout_s),
    )
    return TorchRanks(device=device)


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
