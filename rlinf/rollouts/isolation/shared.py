"""Observations that two processes hold in the same memory, so that no message has to carry them.

The run makes an anonymous file in memory and the environment's process opens it through the run's own file
descriptors (`/proc/PID/fd`): nothing has a name that could stay behind. If the system has no such files
(macOS), or the other process may not open it, observations travel in messages as before.
"""

from __future__ import annotations

import math
import mmap
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

Arrays = dict[str, np.ndarray]
_ALIGNED = 64
"""Bytes: leaves begin at cache lines, so that two processes never write to the same line."""


class SharedArrays:
    """Arrays of given shapes and dtypes in memory that :func:`open_shared` maps elsewhere."""

    def __init__(self, like: Mapping[str, np.ndarray]) -> None:
        """Raise OSError if there is no such memory."""
        if not hasattr(os, "memfd_create"):
            raise OSError("no anonymous files in memory on this system")
        self.layout, size = _layout(like)
        self._handle = os.memfd_create("rlinf observations")
        os.truncate(self._handle, max(size, 1))
        self.arrays = _mapped(self._handle, self.layout)
        for name, array in like.items():
            self.arrays[name][:] = array

    @property
    def address(self) -> dict[str, Any]:
        """The address that :func:`open_shared` needs."""
        return {"path": f"/proc/{os.getpid()}/fd/{self._handle}", "layout": self.layout}

    def close(self) -> None:
        """Close the file; arrays that are still held stay valid."""
        os.close(self._handle)


def open_shared(address: Mapping[str, Any]) -> Arrays:
    """Open the arrays of another process's :class:`SharedArrays`. Raises OSError if they cannot be opened."""
    handle = os.open(address["path"], os.O_RDWR)
    try:
        return _mapped(handle, address["layout"])
    finally:
        os.close(handle)


def _layout(like: Mapping[str, np.ndarray]) -> tuple[list[list[Any]], int]:
    """Name, dtype, shape and offset of each array; bytes of all."""
    layout: list[list[Any]] = []
    size = 0
    for name, array in like.items():
        layout.append([name, array.dtype.str, list(array.shape), size])
        size += math.ceil(array.nbytes / _ALIGNED) * _ALIGNED
    return layout, size


def _mapped(handle: int, layout: list[list[Any]]) -> Arrays:
    memory = mmap.mmap(handle, 0)
    return {
        name: np.frombuffer(memory, np.dtype(dtype), math.prod(shape), offset).reshape(shape)
        for name, dtype, shape, offset in layout
    }
