"""Output that may have no reader: `rlinf train run.yaml | head`, `>&-`, a terminal that is closed, a full disk."""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

_NO_READER = (errno.EPIPE, errno.EIO)  # a pipe's other end is closed; the terminal is gone
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_NAMES = {1: "standard output", 2: "standard error"}


class _Outlasting(io.FileIO):
    """Writes to a file descriptor until its reader leaves, and to nowhere from then on."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data) or 0
        except OSError as error:
            if error.errno not in (*_NO_READER, *_NO_ROOM):
                raise
            _to_nowhere(self.fileno())
            if error.errno in _NO_ROOM and self.fileno() in _NAMES:
                words = f"{_NAMES[self.fileno()]}: {error.strerror}; going on without it\n"
                with suppress(OSError):
                    os.write(2, words.encode())
            return memoryview(data).nbytes


def _to_nowhere(descriptor: int) -> None:
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, descriptor)
    if nowhere != descriptor:
        os.close(nowhere)


def open_standard_streams() -> None:
    """Open the standard streams that the caller has closed (`>&-`), to nowhere.

    Otherwise the next file that is opened would get their number, and what a library prints would go into it.
    """
    for descriptor, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        try:
            os.fstat(descriptor)
        except OSError:
            _to_nowhere(descriptor)
        if getattr(sys, name) is None:
            setattr(sys, name, open(descriptor, mode, encoding="utf-8", closefd=False))  # noqa: SIM115 it lasts
    for stream in (sys.stdout, sys.stderr):
        # A letter that the terminal's encoding lacks (ASCII, cp1252) must not end a run.
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="replace")


def flushed(code: int) -> int:
    """``code`` once standard output has taken everything; otherwise 1, and a sentence. A reader may leave early."""
    try:
        sys.stdout.flush()
    except OSError as error:
        _to_nowhere(sys.stdout.fileno())
        if error.errno in _NO_READER:
            return code
        with suppress(OSError):
            print(f"standard output: {error.strerror}", file=sys.stderr)
        return 1
    return code


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
