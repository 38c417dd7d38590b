"""Time limits for code of the environment's author that runs in this process."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class DeadlineExceededError(Exception):
    """The code did not return in time."""


def can_interrupt() -> bool:
    """Whether :func:`deadline` works here: Python runs signal handlers in a process's main thread only."""
    return threading.current_thread() is threading.main_thread()


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Raise :class:`DeadlineExceededError` inside the block after ``seconds``; 0 sets no limit.

    It interrupts Python code and interruptible system calls. C code that never returns to the interpreter needs a
    process of its own, which can be killed. A timer that was running before (for example a test's time limit)
    goes on afterwards with what was left of it.

    Raises:
        RuntimeError: this is not the main thread, in which alone a block can be interrupted.
    """
    if seconds == 0:
        yield
        return
    if not can_interrupt():
        raise RuntimeError(
            "a time limit on environments needs the main thread of a process: use cluster.backend: ray, "
            "or env.step_timeout_s: 0, which sets no limit"
        )
    started = time.monotonic()
    handler_before = signal.signal(signal.SIGALRM, _raise_deadline)
    left_before, interval_before = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, handler_before)
        if left_before > 0.0:
            left = max(left_before - (time.monotonic() - started), 0.001)
            signal.setitimer(signal.ITIMER_REAL, left, interval_before)


def _raise_deadline(signum: int, frame: FrameType | None) -> None:
    raise DeadlineExceededError
