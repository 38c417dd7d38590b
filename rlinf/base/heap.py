"""Memory that was freed and that the C library still holds: learners and samplers give it back after their work."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

_MUCH = 512 * 2**20
_OPTIONS = {-1: _MUCH, -3: 32 * 2**20}
"""By their numbers in glibc's malloc.h: the size from which the end of the heap is given back, and that from which a
block has a mapping of its own (the most that glibc allows)."""
_STATM = Path("/proc/self/statm")


class FreedMemory:
    """Gives back what this process has freed, once it has grown by :data:`_MUCH` since the last time.

    Blocks lie between each other in glibc's heap and differ in size from batch to batch, so the heap grows with every
    update or generation and hardly shrinks by itself: two ranks of a model of 135 million parameters held 7.4 GB each
    after 90 updates, of which 4 GB were free. Within an update freed blocks are used again, which costs less. glibc
    is set to keep them until then: pages that it gives back and takes again are cleared by the system.
    """

    def __init__(self) -> None:
        self._trim = _malloc_trim()
        self._kept = 0
        if self._trim is not None:
            for option, size in _OPTIONS.items():
                ctypes.CDLL(None).mallopt(option, size)

    def release_to_os(self) -> None:
        """Release free memory to the system; do nothing if the C library or the system has no way to."""
        if self._trim is None or resident_bytes() - self._kept < _MUCH:
            return
        self._trim(0)
        self._kept = resident_bytes()


def _malloc_trim() -> ctypes._NamedFuncPointer | None:
    """glibc's; None elsewhere."""
    if not _STATM.exists():
        return None
    return getattr(ctypes.CDLL(None), "malloc_trim", None)


def resident_bytes() -> int:
    """Return the bytes of this process that are in memory; 0 if the system does not give them."""
    if not _STATM.exists():
        return 0
    return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
