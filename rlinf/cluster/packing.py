"""Values as one small pickle plus the raw bytes of their tensors.

Torch pickles a CPU tensor by writing its storage into the pickle, several copies on the way. Here tensors are
taken out of the pickle as buffers. Ray writes these into shared memory with one copy, and readers use them
there.
"""

from __future__ import annotations

import io
import pickle
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pickle import PickleBuffer
from typing import Any

from ray import cloudpickle

_ALIGNED = 64  # bytes


@dataclass(frozen=True)
class Packed:
    """A pickle, and the buffers it refers to in order."""

    head: bytes
    buffers: Sequence[Any]


class _Pickler(cloudpickle.CloudPickler):
    def reducer_override(self, obj: Any) -> Any:
        torch = sys.modules.get("torch")
        if torch is not None and type(obj) is torch.Tensor and _is_plain(obj):
            flat = obj.contiguous().reshape(-1).view(torch.uint8)
            name = str(obj.dtype).removeprefix("torch.")
            return _tensor, (PickleBuffer(flat.numpy()), name, tuple(obj.shape))
        return super().reducer_override(obj)


def _is_plain(tensor: Any) -> bool:
    """Return whether shape, dtype and bytes describe the tensor completely."""
    layout = str(tensor.layout) == "torch.strided" and tensor.device.type == "cpu" and not tensor.is_quantized
    return layout and not tensor.requires_grad and not tensor.is_conj() and not tensor.is_neg() and tensor.numel() > 0


def _tensor(data: Any, dtype: str, shape: tuple[int, ...]) -> Any:
    import torch

    with warnings.catch_warnings():
        # Shared tensors lie in read-only memory; by the contract of ``share`` no process may write to them.
        warnings.filterwarnings("ignore", message="The given buffer is not writable")
        return torch.frombuffer(data, dtype=getattr(torch, dtype)).reshape(shape)


def pack(value: Any) -> Packed:
    """Pack the value as pickle and buffers. Nothing is copied yet: the buffers still are the tensors' memory."""
    buffers: list[PickleBuffer] = []
    file = io.BytesIO()
    _Pickler(file, protocol=5, buffer_callback=buffers.append).dump(value)
    return Packed(file.getvalue(), buffers)


def unpack(packed: Packed, *, writable: bool) -> Any:
    """Restore the value. ``writable`` copies the bytes; otherwise tensors stay where they are and must only be read."""
    buffers = [_copy(buffer) for buffer in packed.buffers] if writable else packed.buffers
    return pickle.loads(packed.head, buffers=buffers)


def _copy(buffer: Any) -> Any:
    import numpy

    source = numpy.frombuffer(buffer, dtype=numpy.uint8)
    # Aligned as torch does it and its fast kernels like it; without torch, which not every worker has loaded.
    room = numpy.empty(source.size + _ALIGNED - 1, dtype=numpy.uint8)
    start = -room.ctypes.data % _ALIGNED
    copy = room[start : start + source.size]
    copy[:] = source
    return copy
