"""Signals that ask the program to end: Ctrl-C, SIGTERM (schedulers), SIGHUP (a terminal that closes).

While :func:`stop_signals` lasts, each of them raises :class:`Stopped` in the main thread, at once or at the end of a
section that :func:`held` protects, so that whoever catches it finds a state that can be saved. The second one is not
held back.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)  # Windows has no SIGHUP


class Stopped(KeyboardInterrupt):
    """A signal asked the program to end. ``str`` gives one sentence for the person who sent it."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number
        self.outlook = ""
        """What becomes of the work, where there is something to say: the end of the sentence."""

    @property
    def exit_code(self) -> int:
        """As shells have it: 130 for SIGINT, 143 for SIGTERM, 129 for SIGHUP."""
        return 128 + self.number

    def __str__(self) -> str:
        head = "Interrupted" if self.number == signal.SIGINT else f"Stopped by {signal.Signals(self.number).name}"
        return f"{head}; {self.outlook}." if self.outlook else f"{head}."


class _State:
    """The state of this process's signal handlers."""

    def __init__(self) -> None:
        self.holds = 0
        self.waiting: int | None = None
        """The signal that came inside a held section."""


_state = _State()


@contextmanager
def stop_signals() -> Iterator[None]:
    """Turns the stop signals into :class:`Stopped`. Nothing in a thread other than the main one.

    A signal that the caller ignores (``nohup``, jobs in the background of a script) stays ignored.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, _stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        _state.holds, _state.waiting = 0, None


def _stop(number: int, _frame: FrameType | None) -> None:
    if _state.holds and _state.waiting is None:
        _state.waiting = number
        name = signal.Signals(number).name
        # Not print: the main thread may be inside one.
        os.write(2, f"{name}: stopping as soon as the state can be saved; once more to stop at once.\n".encode())
        return
    _state.waiting = None
    raise Stopped(number)


@contextmanager
def held() -> Iterator[None]:
    """Holds the first stop signal back until the end of the section, which changes what a checkpoint consists of.

    An error of the section itself comes first.
    """
    _state.holds += 1
    try:
        yield
    finally:
        _state.holds -= 1
    if _state.holds == 0 and _state.waiting is not None:
        number, _state.waiting = _state.waiting, None
        raise Stopped(number)


@contextmanager
def as_interrupts(outlook: str) -> Iterator[Callable[[], int]]:
    """Turns SIGTERM and SIGHUP into Ctrl-C, for libraries that know no other way to be stopped.

    Gives a function that returns the exit code for the signal that came. An interrupt that nobody catches becomes
    :class:`Stopped` with ``outlook``.
    """
    came = [int(signal.SIGINT)]

    def interrupt(number: int, _frame: FrameType | None) -> None:
        came[0] = number
        signal.raise_signal(signal.SIGINT)

    main = threading.current_thread() is threading.main_thread()
    before = {number: signal.getsignal(number) for number in _SIGNALS if main and number != signal.SIGINT}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, interrupt)
    try:
        yield lambda: 128 + came[0]
    except KeyboardInterrupt:
        stopped = Stopped(came[0])
        stopped.outlook = outlook
        raise stopped from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
