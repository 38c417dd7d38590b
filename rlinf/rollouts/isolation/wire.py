"""Messages between a run and an environment's process: JSON for what is small, raw buffers for arrays, no pickle.

A frame is a fixed head (magic, version, two lengths), a JSON header, and the arrays end to end in C order. The other
side may be another Python with another numpy, and is not trusted with more than numbers: nothing that is received is
ever executed, and lengths are limited before memory is taken.
"""

from __future__ import annotations

import json
import math
import socket
import struct
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np

VERSION = 4
"""Of the frames and of what the messages mean; both sides must have the same."""
_MAGIC = b"RLEV"
_HEAD = struct.Struct("<4sHIQ")
_MAX_HEADER = 16 * 2**20
_MAX_BODY = 4 * 2**30
_SMALL = 64 * 2**10
_KINDS = "biufc"
"""Of numpy dtypes: numbers and booleans. Objects would have to be unpickled."""


class IsolationError(RuntimeError):
    """The other side does not speak this protocol."""


class HungUpError(ConnectionError):
    """The other side closed the connection."""


@dataclass
class WireMessage:
    """One message: what it is about, small values, and arrays by name."""

    kind: str
    fields: dict[str, Any] = field(default_factory=dict)
    arrays: dict[str, np.ndarray] = field(default_factory=dict)


def send(connection: socket.socket, message: WireMessage, timeout_s: float | None = None) -> None:
    """Send one frame.

    Raises:
        TimeoutError: the other side did not take it within ``timeout_s`` (None waits for ever).
        HungUpError: there is no other side any more.
        IsolationError: an array of something else than numbers.
    """
    for name, array in message.arrays.items():
        _check_dtype(name, array.dtype)
    parts = [np.ascontiguousarray(array) for array in message.arrays.values()]
    layout = [
        [name, array.dtype.str, list(np.shape(message.arrays[name]))]
        for name, array in zip(message.arrays, parts, strict=True)
    ]
    header = json.dumps({"kind": message.kind, "fields": message.fields, "arrays": layout}).encode()
    body = sum(part.nbytes for part in parts)
    pieces: list[bytes | memoryview] = [_HEAD.pack(_MAGIC, VERSION, len(header), body) + header]
    pieces += [part.reshape(-1).view(np.uint8).data for part in parts if part.nbytes]
    connection.settimeout(timeout_s)
    try:
        # Small messages in one piece: what a step costs is the number of system calls.
        for piece in [b"".join(pieces)] if body < _SMALL else pieces:
            connection.sendall(piece)
    except (BrokenPipeError, ConnectionResetError) as error:
        raise HungUpError("the connection is closed") from error


def receive(connection: socket.socket, timeout_s: float | None = None) -> WireMessage:
    """Wait for one frame; its arrays are writable and own their memory together.

    Raises:
        TimeoutError: it was not there, whole, within ``timeout_s`` (None waits for ever).
        HungUpError: the other side closed the connection.
        IsolationError: what came is no frame of this version.
    """
    until = None if timeout_s is None else time.monotonic() + timeout_s
    magic, version, header_length, body_length = _HEAD.unpack(_take(connection, _HEAD.size, until))
    if magic != _MAGIC:
        raise IsolationError(f"expected a message, got the bytes {bytes(magic)!r}: something else writes to the socket")
    if version != VERSION:
        raise IsolationError(f"the other side speaks version {version} of the protocol, this side version {VERSION}")
    if header_length > _MAX_HEADER or body_length > _MAX_BODY:
        raise IsolationError(
            f"a message of {header_length} and {body_length} bytes is longer than any that is sent here"
        )
    header = json.loads(bytes(_take(connection, header_length, until)))
    return WireMessage(
        header["kind"], header["fields"], _arrays(header["arrays"], _take(connection, body_length, until))
    )


def _take(connection: socket.socket, length: int, until: float | None) -> bytearray:
    """Exactly ``length`` bytes."""
    buffer = bytearray(length)
    view, taken = memoryview(buffer), 0
    while taken < length:
        if until is not None and time.monotonic() >= until:
            raise TimeoutError(f"{taken} of {length} bytes had arrived at the deadline")
        connection.settimeout(None if until is None else max(until - time.monotonic(), 1e-3))
        try:
            got = connection.recv_into(view[taken:])
        except ConnectionResetError as error:
            raise HungUpError("the connection was reset") from error
        if got == 0:
            raise HungUpError("the connection is closed")
        taken += got
    return buffer


def _arrays(layout: list[Any], body: bytearray) -> dict[str, np.ndarray]:
    """Return the arrays of a frame as views of its body."""
    arrays: dict[str, np.ndarray] = {}
    offset = 0
    for name, dtype_name, shape in layout:
        dtype = np.dtype(dtype_name)
        _check_dtype(name, dtype)
        count = math.prod(shape)
        if min(shape, default=0) < 0 or offset + count * dtype.itemsize > len(body):
            raise IsolationError(f"{name}: the message ends before its array does")
        arrays[name] = np.frombuffer(body, dtype, count, offset).reshape(shape)
        offset += count * dtype.itemsize
    return arrays


def _check_dtype(name: str, dtype: np.dtype) -> None:
    if dtype.kind not in _KINDS:
        raise IsolationError(f"{name}: arrays of {dtype} are not sent here, only numbers and booleans")
