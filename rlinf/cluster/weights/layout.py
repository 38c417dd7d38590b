"""Named tensors as one run of bytes, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

_ALIGNMENT = 64  # of every tensor's first byte, as torch's own memory


@dataclass(frozen=True)
class Entry:
    """Where a tensor lies."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    size: int
    """Bytes."""


@dataclass(frozen=True)
class Layout:
    """The places of named tensors in ``size`` bytes."""

    entries: tuple[Entry, ...]
    size: int

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor]) -> Layout:
        entries: list[Entry] = []
        end = 0
        for name, tensor in tensors.items():
            size = tensor.numel() * tensor.element_size()
            dtype = str(tensor.dtype).removeprefix("torch.")
            entries.append(Entry(name, dtype, tuple(tensor.shape), end, size))
            end += -(-size // _ALIGNMENT) * _ALIGNMENT
        return cls(tuple(entries), end)

    def views(self, flat: Tensor) -> dict[str, Tensor]:
        """The tensors in the memory of ``flat`` uint8 [size]."""
        return {
            entry.name: flat[entry.start : entry.start + entry.size]
            .view(getattr(torch, entry.dtype))
            .reshape(entry.shape)
            for entry in self.entries
        }

    def write(self, tensors: Mapping[str, Tensor], flat: Tensor) -> None:
        """Copies the tensors to their places in ``flat`` uint8 [size], on any device."""
        for name, place in self.views(flat).items():
            place.copy_(tensors[name])

    def buckets(self, limit: int) -> list[Layout]:
        """The same tensors in order, in portions of at most ``limit`` bytes (a larger tensor is one of its own).

        The places of a portion count from its own beginning; a portion follows the one before without a gap.
        """
        portions: list[Layout] = []
        first = 0
        for index in range(1, len(self.entries) + 1):
            at_end = index == len(self.entries)
            end = self.size if at_end else self.entries[index].start
            full = not at_end and _end(self.entries[index]) - self.entries[first].start > limit
            if at_end or full:
                portions.append(_portion(self.entries[first:index], end))
                first = index
        return portions


def _end(entry: Entry) -> int:
    return entry.start + entry.size


def _portion(entries: Sequence[Entry], end: int) -> Layout:
    base = entries[0].start
    moved = (Entry(entry.name, entry.dtype, entry.shape, entry.start - base, entry.size) for entry in entries)
    return Layout(tuple(moved), end - base)
