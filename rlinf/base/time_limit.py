"""A time limit on a user's Python code, in any thread."""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

_CHECK_S = 0.5


class TimeLimitError(Exception):
    """The code did not return in time."""


class _Watch:
    """A thread that interrupts those that are late."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._until: dict[int, float] = {}
        self._thread: threading.Thread | None = None

    def begin(self, seconds: float) -> None:
        with self._lock:
            self._until[threading.get_ident()] = time.monotonic() + seconds
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="time-limits", daemon=True)
                self._thread.start()

    def end(self) -> None:
        with self._lock:
            late = self._until.pop(threading.get_ident(), None) is None
        if late:  # an interruption that has not come yet has no receiver any more
            _interrupt(threading.get_ident(), None)

    def _run(self) -> None:
        while True:
            time.sleep(_CHECK_S)
            with self._lock:
                if not self._until:
                    self._thread = None
                    return
                now = time.monotonic()
                for thread in [thread for thread, until in self._until.items() if until < now]:
                    del self._until[thread]
                    _interrupt(thread, TimeLimitError)


_watch = _Watch()


def _forget() -> None:
    global _watch
    _watch = _Watch()


os.register_at_fork(after_in_child=_forget)


def _interrupt(thread: int, kind: type[Exception] | None) -> None:
    raised = None if kind is None else ctypes.py_object(kind)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), raised)


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise :class:`TimeLimitError` in the block after ``seconds``, up to half a second later.

    Python code is interrupted between two of its operations: a single call into C runs to its end. Blocks cannot
    be nested.
    """
    _watch.begin(seconds)
    try:
        yield
    finally:
        _watch.end()
