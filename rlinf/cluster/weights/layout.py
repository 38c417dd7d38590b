"""Named tensors as one run of bytes, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from typing import Any

import torch
from torch import Tensor

from rlinf.data.split import split_by_size

_ALIGNMENT = 64  # of every tensor's first byte, as torch's own memory


@dataclass(frozen=True)
class LayoutEntry:
    """Where a tensor is in the memory."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    size: int
    """Bytes."""

    @property
    def room(self) -> int:
        """Bytes up to where the next tensor may begin."""
        return -(-self.size // _ALIGNMENT) * _ALIGNMENT


@dataclass(frozen=True)
class Layout:
    """The positions of named tensors in ``size`` bytes."""

    entries: tuple[LayoutEntry, ...]
    size: int

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor]) -> Layout:
        entries: list[LayoutEntry] = []
        end = 0
        for name, tensor in tensors.items():
            size = tensor.numel() * tensor.element_size()
            dtype = str(tensor.dtype).removeprefix("torch.")
            entries.append(LayoutEntry(name, dtype, tuple(tensor.shape), end, size))
            end += entries[-1].room
        return cls(tuple(entries), end)

    def plain(self) -> dict[str, Any]:
        """As numbers and texts, for a message: :meth:`of_plain` reads it."""
        return {"size": self.size, "entries": [[*astuple(entry)] for entry in self.entries]}

    @classmethod
    def of_plain(cls, plain: Mapping[str, Any]) -> Layout:
        """Build the layout that :meth:`plain` wrote."""
        entries = (
            LayoutEntry(str(name), str(dtype), tuple(map(int, shape)), int(start), int(size))
            for name, dtype, shape, start, size in plain["entries"]
        )
        return cls(tuple(entries), int(plain["size"]))

    def views(self, flat: Tensor) -> dict[str, Tensor]:
        """Return the tensors in the memory of ``flat`` uint8 [size]."""
        return {
            entry.name: flat[entry.start : entry.start + entry.size]
            .view(getattr(torch, entry.dtype))
            .reshape(entry.shape)
            for entry in self.entries
        }

    def write(self, tensors: Mapping[str, Tensor], flat: Tensor) -> None:
        """Copy the tensors to their positions in ``flat`` uint8 [size], on any device."""
        for name, view in self.views(flat).items():
            view.copy_(tensors[name])

    def buckets(self, limit: int) -> list[Layout]:
        """Split the same tensors in order into portions of at most ``limit`` bytes (a larger tensor is one of its own).

        The positions of a portion count from its own beginning; a portion follows the one before without a gap.
        """
        return [_portion(part) for part in split_by_size(((entry, entry.room) for entry in self.entries), limit)]


def _portion(entries: Sequence[LayoutEntry]) -> Layout:
    base = entries[0].start
    moved = tuple(replace(entry, start=entry.start - base) for entry in entries)
    return Layout(moved, moved[-1].start + moved[-1].room)
