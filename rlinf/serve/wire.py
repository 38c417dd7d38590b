"""Messages of openpi's protocol: msgpack, in which an array is a mapping of its bytes, dtype and shape. No pickle.

Source: `openpi_client.msgpack_numpy` of openpi-client 0.1. Only numbers and booleans are taken from the other side.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

_KINDS = "biuf"
_ARRAY, _SCALAR, _DATA, _DTYPE, _SHAPE = b"__ndarray__", b"__npgeneric__", b"data", b"dtype", b"shape"


class WireError(ValueError):
    """Bytes that are no message of this protocol."""


def pack(message: Any) -> bytes:
    """The bytes of a message of mappings, lists, texts, numbers and arrays."""
    import msgpack

    packed: bytes = msgpack.packb(message, default=_packed)
    return packed


def unpack(data: bytes | str) -> Any:
    """The values that :func:`pack` was given; arrays are writable. Anything else is a WireError."""
    import msgpack

    if isinstance(data, str):
        raise WireError("a message is binary (msgpack), and this one is text")
    try:
        return msgpack.unpackb(data, object_hook=_unpacked, strict_map_key=False)
    except WireError:
        raise
    except (ValueError, TypeError, KeyError, msgpack.UnpackException) as error:
        raise WireError(f"no msgpack message: {error}") from error


def _packed(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind not in _KINDS:
        raise TypeError(f"arrays of {value.dtype} are not sent, only numbers and booleans")
    if isinstance(value, np.ndarray):
        return {_ARRAY: True, _DATA: value.tobytes(), _DTYPE: value.dtype.str, _SHAPE: value.shape}
    if isinstance(value, np.generic):
        return {_SCALAR: True, _DATA: value.item(), _DTYPE: value.dtype.str}
    raise TypeError(f"a {type(value).__name__} is not sent")


def _unpacked(value: dict[Any, Any]) -> Any:
    if _ARRAY in value:
        dtype, shape = _number_type(value[_DTYPE]), tuple(value[_SHAPE])
        if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != len(value[_DATA]):
            raise WireError(f"an array of shape {shape} and {dtype} does not have {len(value[_DATA])} bytes")
        return np.frombuffer(bytearray(value[_DATA]), dtype).reshape(shape)
    if _SCALAR in value:
        return _number_type(value[_DTYPE]).type(value[_DATA])
    return value


def _number_type(name: Any) -> np.dtype:
    dtype = np.dtype(name.decode() if isinstance(name, bytes) else name)
    if dtype.kind not in _KINDS:
        raise WireError(f"arrays of {dtype} are not taken, only numbers and booleans")
    return dtype
