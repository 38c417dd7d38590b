"""Output whose reader may leave: `rlinf train run.yaml | head`, a terminal that is closed."""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_NOBODY_READS = (errno.EPIPE, errno.EIO)  # a pipe's other end is closed; the terminal is gone


class _Outlasting(io.FileIO):
    """Writes to a file descriptor until its reader leaves, and to nowhere from then on."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data) or 0
        except OSError as error:
            if error.errno not in _NOBODY_READS:
                raise
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.fileno())
            os.close(nowhere)
            return memoryview(data).nbytes


@contextmanager
def outlasting_readers() -> Iterator[None]:
    """While it lasts, a reader of standard output or error that leaves does not end the program, which goes on.

    Streams that are not the process's own (a notebook's, a test's) are left alone.
    """
    before = {"stdout": sys.stdout, "stderr": sys.stderr}
    for name, stream in before.items():
        if isinstance(stream, io.TextIOWrapper) and stream is getattr(sys, f"__{name}__"):
            stream.flush()
            lasting = io.TextIOWrapper(
                io.BufferedWriter(_Outlasting(stream.fileno(), "w", closefd=False)),
                encoding=stream.encoding,
                errors=stream.errors,
                line_buffering=stream.line_buffering,
            )
            setattr(sys, name, lasting)
    try:
        yield
    finally:
        for name, stream in before.items():
            getattr(sys, name).flush()
            setattr(sys, name, stream)
