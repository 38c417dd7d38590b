"""Counts the bytes of a fake device, by what they are for, as tensors come and go."""

from __future__ import annotations

import functools
import weakref
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass
class _Block:
    """One storage: how large it is and what it is for."""

    size: int
    part: str


@dataclass
class Ledger:
    """The contents of a device now and at its fullest, by part. Storages count once, until the last tensor is gone."""

    now: Counter[str] = field(default_factory=Counter)
    peak: int = 0
    """Bytes at the fullest moment since :meth:`restart`."""
    peak_parts: dict[str, int] = field(default_factory=dict)
    part: str = "other"
    """What is made now is for this."""
    total: int = 0
    """Bytes now."""
    _blocks: dict[int, _Block] = field(default_factory=dict)
    _alive: dict[int, weakref.ref[torch.UntypedStorage]] = field(default_factory=dict)

    @contextmanager
    def making(self, part: str) -> Iterator[None]:
        """Count new tensors inside the context as ``part``."""
        outside, self.part = self.part, part
        try:
            yield
        finally:
            self.part = outside

    def restart(self) -> None:
        """Forgets the peak: the fullest moment is now."""
        self._note(0, always=True)

    def add(self, storage: torch.UntypedStorage, part: str) -> None:
        """Count a storage that is new, or that has another size than when it was seen."""
        key = storage._cdata
        known = self._blocks.get(key)
        if known is not None:
            if known.size != storage.nbytes():
                self._change(known, storage.nbytes(), known.part)
            return
        block = self._blocks[key] = _Block(0, part)
        self._alive[key] = weakref.ref(storage, functools.partial(self._forget, key))
        self._change(block, storage.nbytes(), part)

    def resized(self, storage: torch.UntypedStorage) -> None:
        """Count what became of a storage that was resized: FSDP resizes those of the weights it gathers."""
        block = self._blocks.get(storage._cdata)
        if block is not None:
            self._change(block, storage.nbytes(), "weights gathered")

    def relabel(self, tensors: Iterable[Tensor], part: str) -> None:
        """Set the part that these tensors are counted for; those that were never seen are left alone."""
        for tensor in tensors:
            block = self._blocks.get(tensor.untyped_storage()._cdata)
            if block is not None and block.part != part:
                self._change(block, block.size, part)

    def _change(self, block: _Block, size: int, part: str) -> None:
        self.now[block.part] -= block.size
        self.now[part] += size
        grown = size - block.size
        block.size, block.part = size, part
        self.total += grown
        self._note(grown)

    def _note(self, grown: int, *, always: bool = False) -> None:
        if always or (grown > 0 and self.total > self.peak):
            self.peak = self.total
            self.peak_parts = {part: size for part, size in self.now.items() if size}

    def _forget(self, key: int, _gone: object) -> None:
        block = self._blocks.pop(key)
        self._alive.pop(key, None)
        self.now[block.part] -= block.size
        self.total -= block.size
