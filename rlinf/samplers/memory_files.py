"""Tensors in a file that is in memory, for engines whose workers are processes of their own."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from torch import Tensor

_MEMORY = "/dev/shm"
"""Where files are in memory: Linux only, as engines of several processes are."""


@contextmanager
def in_shared_memory(tensors: Mapping[str, Tensor]) -> Iterator[str]:
    """Keep a file in memory that holds these tensors while the context lasts, for :func:`from_shared_memory`.

    Any number of processes of this machine may read it. (A handle of torch's own shared memory serves one reader
    only.)
    """
    from safetensors.torch import save_file

    with tempfile.NamedTemporaryFile(dir=_MEMORY, prefix="rlinf-weights-") as file:
        save_file({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}, file.name)
        yield file.name


def from_shared_memory(path: str) -> list[tuple[str, Tensor]]:
    """Read the tensors of :func:`in_shared_memory`, in another process or in several."""
    from safetensors.torch import load_file

    return list(load_file(path).items())
