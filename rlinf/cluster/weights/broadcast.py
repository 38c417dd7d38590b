"""Weights from one process to several others by a collective broadcast: gloo between CPUs, NCCL between GPUs.

The processes have a group of their own in addition to those they are in already (ranks of a learner, ranks of
an inference engine). So it is made from torch's parts and not as the default group.
"""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from rlinf.cluster.weights.layout import Layout
from rlinf.data.messages import WeightUpdate

BUCKET_BYTES = 64 << 20
"""An update travels in portions of this size: what the sender needs in addition to the weights."""


class BroadcastError(RuntimeError):
    """The others could not be reached in time, or went away in the middle."""


class Broadcast:
    """A group of one sender (rank 0) and its receivers."""

    def __init__(self, store: dist.Store, *, rank: int, size: int, device: torch.device, timeout_s: float) -> None:
        self._device = device
        self._flats = [torch.empty(0, dtype=torch.uint8, device=device) for _ in range(2)]
        """The updates before and now."""
        timeout = timedelta(seconds=timeout_s)
        try:
            if device.type == "cuda":
                options = dist.ProcessGroupNCCL.Options()
                options._timeout = timeout
                self._group: Any = dist.ProcessGroupNCCL(store, rank, size, options)
            else:
                self._group = dist.ProcessGroupGloo(store, rank, size, timeout)
        except RuntimeError as error:
            raise BroadcastError(f"the group for weights could not be formed: {error}") from error

    @classmethod
    def host(cls, *, timeout_s: float) -> dist.TCPStore:
        """Open the meeting point; its ``port`` is for the receivers. Called by the sender."""
        return dist.TCPStore("0.0.0.0", 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=timeout_s))

    @classmethod
    def meet(cls, address: str, port: int, *, timeout_s: float) -> dist.TCPStore:
        """Connect to the meeting point of another process, which :meth:`host` opened there."""
        return dist.TCPStore(address, port, is_master=False, timeout=timedelta(seconds=timeout_s))

    @classmethod
    def join(
        cls, address: str, port: int, *, rank: int, size: int, device: torch.device, timeout_s: float
    ) -> Broadcast:
        """Build a receiver's end.

        :raises BroadcastError: not all came within the time.
        """
        try:
            store = cls.meet(address, port, timeout_s=timeout_s)
        except (RuntimeError, dist.DistError) as error:
            raise BroadcastError(f"no process sends weights at {address}:{port}: {error}") from error
        return cls(store, rank=rank, size=size, device=device, timeout_s=timeout_s)

    def send(self, update: WeightUpdate) -> None:
        """To all receivers, in portions.

        :raises BroadcastError: one of them is gone, or late.
        """
        layout = Layout.of(update.tensors)
        facts = {"version": update.version, "part": update.part, "parts": update.parts, "partial": update.partial}
        header = torch.frombuffer(
            bytearray(json.dumps({"layout": layout.plain(), **facts}).encode()), dtype=torch.uint8
        )
        self._broadcast(torch.tensor([header.numel()], device=self._device))
        self._broadcast(header.to(self._device))
        for bucket in layout.buckets(BUCKET_BYTES):
            flat = self._memory(bucket.size)
            bucket.write(update.tensors, flat)
            self._broadcast(flat)

    def receive(self) -> WeightUpdate:
        """Return the update that is being sent; valid until the one after the next.

        :raises BroadcastError: the sender or another receiver is gone, or late.
        """
        size = torch.zeros(1, dtype=torch.int64, device=self._device)
        self._broadcast(size)
        header = torch.empty(int(size), dtype=torch.uint8, device=self._device)
        self._broadcast(header)
        facts = json.loads(header.cpu().numpy().tobytes())
        layout = Layout.of_plain(facts.pop("layout"))
        flat = self._memory(layout.size)
        start = 0
        for bucket in layout.buckets(BUCKET_BYTES):
            self._broadcast(flat[start : start + bucket.size])
            start += bucket.size
        return WeightUpdate(tensors=layout.views(flat), **facts)

    def close(self) -> None:
        """End this side's connections: the others' waiting ends with an error."""
        self._group.abort() if hasattr(self._group, "abort") else None
        self._group = None

    def _memory(self, size: int) -> Tensor:
        """``size`` bytes, the same at every second update."""
        self._flats.reverse()
        if self._flats[0].numel() < size:
            self._flats[0] = torch.empty(size, dtype=torch.uint8, device=self._device)
        return self._flats[0][:size]

    def _broadcast(self, tensor: Tensor) -> None:
        options = dist.BroadcastOptions()
        options.rootRank = 0
        try:
            self._group.broadcast([tensor], options).wait()
            if self._device.type == "cuda":
                torch.cuda.current_stream().synchronize()
        except RuntimeError as error:
            raise BroadcastError(f"the broadcast of weights broke off: {error}") from error
