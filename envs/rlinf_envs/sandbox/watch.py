"""One running program as seen from outside: it is handed its text, its output is read, and its files are counted."""

from __future__ import annotations

import os
import selectors
import socket
import subprocess
import time
from contextlib import suppress

from rlinf_envs.sandbox.limits import Limits

_WALL_FACTOR = 3.0
"""A program that does not compute is given up after this many times as long by the clock."""
_COUNT_S = 0.05
"""How often files are counted."""
_CHUNK = 65536


class Watch:
    """Follows ``process`` to its end or to one of its limits.

    ``door``: the other end of its standard input, through which it first sends the folder that it writes to, and then
    gets ``given``.
    """

    def __init__(self, process: subprocess.Popen[bytes], door: socket.socket, given: bytes, limits: Limits) -> None:
        self._process, self._door, self._given, self._limits = process, door, memoryview(given), limits
        self._output = bytearray()
        self._folder: int | None = None
        self._until = time.monotonic() + limits.time_s * _WALL_FACTOR

    def until_it_ends(self) -> tuple[bytes, bool]:
        """Return (what it printed, whether its time was up). The caller kills what may still run."""
        try:
            return self._ended()
        finally:
            if self._folder is not None:
                os.close(self._folder)

    def _ended(self) -> tuple[bytes, bool]:
        printed = self._process.stdout
        assert printed is not None
        with selectors.DefaultSelector() as selector:
            self._door.setblocking(False)
            selector.register(self._door, selectors.EVENT_READ)
            selector.register(printed, selectors.EVENT_READ)
            while printed in {key.fileobj for key in selector.get_map().values()}:
                left = self._until - time.monotonic()
                if left <= 0:
                    return bytes(self._output), True
                for key, _ in selector.select(min(left, _COUNT_S)):
                    if key.fileobj is self._door:
                        self._hand_over(selector)
                    elif not self._read(printed.fileno()):
                        selector.unregister(printed)
                excess = self._excess()
                if excess is not None:
                    return bytes(self._output) + excess, False
        try:
            self._process.wait(max(0.0, self._until - time.monotonic()))
        except subprocess.TimeoutExpired:
            return bytes(self._output), True
        return bytes(self._output), False

    def _hand_over(self, selector: selectors.BaseSelector) -> None:
        """Take the folder, then send as much of the text as there is room for."""
        with suppress(OSError):  # it has ended: its output has the reason
            if self._folder is None:
                _, folders, _, _ = socket.recv_fds(self._door, 1, 1)
                if folders:
                    self._folder = folders[0]
                    selector.modify(self._door, selectors.EVENT_WRITE)
                    return
            else:
                self._given = self._given[self._door.send(self._given[:_CHUNK]) :]
                if self._given:
                    return
        selector.unregister(self._door)

    def _read(self, descriptor: int) -> bool:
        """Whether it may print more."""
        chunk = os.read(descriptor, _CHUNK)
        self._output += chunk
        return bool(chunk)

    def _excess(self) -> bytes | None:
        """Return the reason, as a line of output, why it may not go on; empty for output that is cut anyway."""
        if len(self._output) > 4 * self._limits.output_chars:
            return b""
        if self._folder is not None:
            count = os.fstatvfs(self._folder)
            if count.f_files - count.f_ffree > self._limits.files:
                return f"\nended: it made over {self._limits.files} files in /tmp\n".encode()
        return None
