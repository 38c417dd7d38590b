"""The C library's heap in a process that computes with a model on the CPU."""

from __future__ import annotations

import ctypes

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_MAX = -1, -2, -4
"""Of <malloc.h>."""
_NEVER = -1
_GROWTH = 1 << 28
"""Bytes by which the heap grows at least: 256 MiB."""


def keep_freed_memory() -> None:
    """The process keeps what its tensors free, in place of giving it back to the kernel and asking for it again.

    glibc takes each block of more than 32 MiB from the kernel and returns it at once, as it does with the end of its
    heap. Logits and gradients of a vocabulary of 49,152 are such blocks: the kernel then clears the same pages again in
    every micro-batch, a tenth to a quarter of an update's CPU-seconds. Other C libraries are left as they are.
    """
    setting = getattr(ctypes.CDLL(None), "mallopt", None)
    if setting is None:
        return
    setting(_M_MMAP_MAX, 0)
    setting(_M_TRIM_THRESHOLD, _NEVER)
    setting(_M_TOP_PAD, _GROWTH)


def give_back_freed_memory() -> None:
    """Once: where another kind of work follows, whose blocks would not fit into the gaps that this one leaves."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
