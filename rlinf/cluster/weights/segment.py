"""Weights in memory that the processes of one node share.

The memory is a file without a name (``memfd``), which others open through the owner's entry in ``/proc``. So it is not
bound by the size of ``/dev/shm``, and it is gone when the last process that has it open ends, however that happens.
"""

from __future__ import annotations

import json
import mmap
import os
from dataclasses import dataclass

import torch
from torch import Tensor

from rlinf.cluster.weights.layout import Layout
from rlinf.data.messages import WeightUpdate


@dataclass(frozen=True)
class SegmentAddress:
    """Where an update is stored, for :class:`SegmentReader` in another process of the node."""

    path: str
    layout: Layout
    version: int
    part: int
    parts: int
    partial: bool

    def message(self) -> bytes:
        """As JSON, which runs no code when it is read."""
        return json.dumps({**vars(self), "layout": self.layout.plain()}).encode()

    @classmethod
    def of_message(cls, message: bytes) -> SegmentAddress:
        """Read the address that :meth:`message` wrote."""
        plain = json.loads(message)
        return cls(**{**plain, "layout": Layout.of_plain(plain["layout"])})


def address_key(sending: int, part: int) -> str:
    """Under which a reader finds the :class:`SegmentAddress` of a part of the ``sending``-th weights."""
    return f"{sending}.{part}"


def available() -> bool:
    """Whether this system has such memory (Linux)."""
    return hasattr(os, "memfd_create") and os.path.isdir("/proc/self/fd")


class SegmentWriter:
    """The learner's side: one piece of memory, written again for every update."""

    def __init__(self) -> None:
        self._file = -1
        self._memory: mmap.mmap | None = None
        self._flat = torch.empty(0, dtype=torch.uint8)

    def write(self, update: WeightUpdate) -> SegmentAddress:
        """Copy the weights there; no process may still be reading the update before.

        :raises OSError: the system has not as much memory.
        """
        layout = Layout.of(update.tensors)
        if layout.size > self._flat.numel():
            self.close()
            self._file = os.memfd_create("rlinf-weights")
            os.ftruncate(self._file, layout.size)
            self._memory = mmap.mmap(self._file, layout.size)
            self._flat = torch.frombuffer(self._memory, dtype=torch.uint8)
        layout.write(update.tensors, self._flat)
        path = f"/proc/{os.getpid()}/fd/{self._file}"
        return SegmentAddress(path, layout, update.version, update.part, update.parts, update.partial)

    def close(self) -> None:
        """Give the memory back, once the readers have closed theirs too."""
        if self._memory is not None:
            self._flat = torch.empty(0, dtype=torch.uint8)
            self._memory = None
            os.close(self._file)


class SegmentReader:
    """The receiver's side."""

    def __init__(self) -> None:
        self._path = ""
        self._flat = torch.empty(0, dtype=torch.uint8)

    def read(self, address: SegmentAddress) -> WeightUpdate:
        """Return the update, in the shared memory itself: valid until the next one is written, and not to be changed.

        :raises FileNotFoundError: the writer's process is gone.
        """
        if address.path != self._path or self._flat.numel() < address.layout.size:
            self._flat, self._path = _mapped(address), address.path
        tensors = address.layout.views(self._flat)
        return WeightUpdate(address.version, tensors, address.part, address.parts, address.partial)


def _mapped(address: SegmentAddress) -> Tensor:
    """Map the memory of another process, writable only because torch has no tensors that are not."""
    file = os.open(address.path, os.O_RDWR)
    try:
        memory = mmap.mmap(file, 0)
    finally:
        os.close(file)
    return torch.frombuffer(memory, dtype=torch.uint8)
