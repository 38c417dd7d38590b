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
    """Gives back what this process has freed, once it holds :data:`_MUCH` more than one update or generation needs.

    Blocks lie between each other in glibc's heap and differ in size from batch to batch, so the heap grows with every
    update or generation and hardly shrinks by itself: two ranks of a model of 135 million parameters held 7.4 GB each
    after 90 updates, of which 4 GB were free. What one update takes is kept for the next: pages that are given back
    and taken again are cleared by the system, a tenth of the CPU time of an update of such a model.
    """

    def __init__(self) -> None:
        self._trim = _malloc_trim()
        self._limit: int | None = None
        if self._trim is not None:
            for option, size in _OPTIONS.items():
                ctypes.CDLL(None).mallopt(option, size)

    def release_to_os(self) -> None:
        """Release free memory to the system; do nothing if the C library or the system has no way to.

        The first call, and the first one after a release, measures what the work before it needs.
        """
        if self._trim is None:
            return
        resident = resident_bytes()
        if self._limit is None:
            self._limit = resident + _MUCH
        elif resident >= self._limit:
            self._trim(0)
            self._limit = None


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
