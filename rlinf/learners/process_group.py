"""The process group of learners that want one even for a single rank (FSDP, megatron-core)."""

from __future__ import annotations

from datetime import timedelta

import torch
import torch.distributed as dist


def join(
    *, rank: int, size: int, address: str | None, port: int | None, device: torch.device, timeout_s: float
) -> None:
    """Start the group (gloo on CPU, NCCL on GPU) unless this process has one already."""
    if dist.is_initialized():
        return
    backend = "nccl" if device.type == "cuda" else "gloo"
    if device.type == "cuda":
        torch.cuda.set_device(device.index or 0)
    timeout = timedelta(seconds=timeout_s)
    if size == 1:
        dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1, timeout=timeout)
        return
    where = f"tcp://{address}:{port}"
    dist.init_process_group(backend, init_method=where, rank=rank, world_size=size, timeout=timeout)
