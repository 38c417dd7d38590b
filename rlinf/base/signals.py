"""Signals that request the program's end, and a user's code that ends it.

They are Ctrl-C, SIGTERM (schedulers), SIGHUP (a terminal that closes), and those by which batch systems
announce an end: SIGUSR1, SIGUSR2, SIGXCPU.

While :func:`stop_signals` lasts, each of them raises :class:`Stopped` in the main thread, and the state can
be saved then. That is at once, or at the end of a section that :func:`defer_signals` protects. A second
SIGINT, SIGTERM or SIGHUP is not held back, and ends the process if the main thread does not come to it
(:class:`_Listener`).
"""

from __future__ import annotations

import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

_URGENT = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)  # Windows has no SIGHUP
_ANNOUNCED = tuple(getattr(signal, name) for name in ("SIGUSR1", "SIGUSR2", "SIGXCPU") if hasattr(signal, name))
"""A checkpoint is still wanted after another one of these: SIGXCPU comes again every second."""
_SIGNALS = (*_URGENT, *_ANNOUNCED)
_SAME_S = 0.2
"""A signal that follows within this time is the same one: `timeout` sends its own to the process and to its group.

That goes for one with another number too: systemd (SendSIGHUP) sends SIGTERM and SIGHUP together, which is no second
wish. The time runs from the first of them, so that a user who goes on sending signals is obeyed.
"""
_SILENCE_S = 1.0
"""How long a signal may seem to have no effect."""
_AT_ONCE_S = 2.0
"""How long after the second signal the main thread may take to end by itself."""


_end = os._exit


class Stopped(KeyboardInterrupt):
    """A signal requested the program's end. ``str`` gives one sentence for the person who sent it."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number
        self.outlook = ""
        """What becomes of the work, if there is any: the end of the sentence."""

    @property
    def exit_code(self) -> int:
        """As shells have it: 130 for SIGINT, 143 for SIGTERM, 129 for SIGHUP, 138 for SIGUSR1."""
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
        self.announced = False
        self.first = False
        """One has come that the next urgent one does not wait for."""
        self.raised = int(signal.SIGINT)
        """The signal that was raised last."""
        self.last = -math.inf
        """When the newest one came that was no other's second copy."""

    def again(self) -> bool:
        """Whether a signal that comes now is the one that has just come."""
        now = time.monotonic()
        same = now - self.last < _SAME_S
        self.last = self.last if same else now
        return same


_state = _State()


@contextmanager
def stop_signals() -> Iterator[None]:
    """Turn the stop signals into :class:`Stopped`. Nothing in a thread other than the main one.

    A signal that the caller ignores (``nohup``, jobs in the background of a script) stays ignored.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    global _state
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    outer, _state = _state, _State()
    _state.holds = outer.holds
    listener = _Listener()
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, _stop)
    try:
        yield
    except KeyboardInterrupt as interrupt:
        raise as_stopped(interrupt) from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        listener.close()
        # A section around the block, as that of a step whose callback evaluates, raises what came in the block.
        if outer.holds and _state.waiting is not None:
            outer.waiting = _state.waiting
        _state = outer


class _Listener:
    """A thread that receives signals while the main thread is in a long call into native code.

    Such a call is for example a matrix product, or Ray.

    Python runs its handlers in the main thread, between two of its own operations. The kernel's part of a handler
    writes the signal's number to a pipe at once, and this thread reads it, unless native code holds the
    interpreter's lock: then only SIGKILL helps.
    """

    def __init__(self, record: Callable[[], None] | None = None) -> None:
        """``record``: called before the process is ended at once, in the thread."""
        self._record = record
        self._ours, theirs = os.pipe()
        os.set_blocking(theirs, False)
        self._theirs = theirs
        self._before = signal.set_wakeup_fd(theirs, warn_on_full_buffer=False)
        self._closed = threading.Event()
        threading.Thread(target=self._listen, name="stop-signals", daemon=True).start()

    def close(self) -> None:
        """Receive no more signals; an end that was due does not come."""
        signal.set_wakeup_fd(self._before)
        self._closed.set()
        os.close(self._theirs)

    def _listen(self) -> None:
        first, last = False, -math.inf
        while came := os.read(self._ours, 64):
            for number in came:
                now = time.monotonic()
                same = now - last < _SAME_S
                if number in _SIGNALS and not same:
                    if not first:
                        threading.Timer(_SILENCE_S, self._announce_late, [number]).start()
                    if first and number in _URGENT and not self._closed.wait(_AT_ONCE_S):
                        self._end(number)
                    first = True
                last = now if number in _SIGNALS and not same else last
        os.close(self._ours)

    def _announce_late(self, number: int) -> None:
        if not self._closed.is_set():
            _announce(number)

    def _end(self, number: int) -> None:
        name = signal.Signals(number).name
        os.write(2, f"{name}: ended at once; the same command continues from the last checkpoint.\n".encode())
        try:
            if self._record is not None:
                self._record()
        finally:
            _end(128 + number)


@contextmanager
def raising_exits() -> Iterator[None]:
    """Let ``os._exit`` raise SystemExit here: in an environment it would end the command without a word, with status 0.

    In another thread than the main one it ends the process, with a line that names the caller and never status 0.
    Processes that this one has forked end as before.
    """
    owner, before = os.getpid(), os._exit

    def leave(status: int) -> NoReturn:
        if os.getpid() != owner:
            _end(status)
        if threading.current_thread() is threading.main_thread():
            raise SystemExit(f"os._exit({status})")
        code = sys._getframe(1).f_code
        os.write(2, f"os._exit({status}) in {code.co_qualname} ({code.co_filename}) ended the command.\n".encode())
        _end(status or 1)

    os._exit = leave
    try:
        yield
    finally:
        os._exit = before


def _announce(number: int) -> None:
    """Report, once, what becomes of a signal that takes no effect at once."""
    if not _state.announced:
        _state.announced = True
        name = signal.Signals(number).name
        # Not print: the main thread may be inside one.
        os.write(2, f"{name}: stopping as soon as the state can be saved; once more to stop at once.\n".encode())


def _stop(number: int, _frame: FrameType | None) -> None:
    if _state.again() or (_state.first and number in _ANNOUNCED):
        return
    _state.first = True
    if _state.holds and _state.waiting is None:
        _state.waiting = number
        _announce(number)
        return
    _state.waiting = None
    _state.raised = number
    raise Stopped(number)


def as_stopped(interrupt: KeyboardInterrupt) -> Stopped:
    """Return the interrupt as :class:`Stopped`, with the signal that came.

    Native code raises another: Ray's, which checks for signals while it waits, gives a plain KeyboardInterrupt.
    """
    return interrupt if isinstance(interrupt, Stopped) else Stopped(_state.raised)


@contextmanager
def defer_signals() -> Iterator[None]:
    """Hold the first stop signal back until the end of the section, which changes what a checkpoint consists of.

    An error of the section itself comes first.
    """
    _state.holds += 1
    try:
        yield
    finally:
        _state.holds -= 1
    if _state.holds == 0 and _state.waiting is not None:
        number, _state.waiting = _state.waiting, None
        _state.raised = number
        raise Stopped(number)


def interrupt_self() -> None:
    """Raise SIGINT in the main thread, which is no further signal from outside: the listener does not receive it."""
    listener = signal.set_wakeup_fd(-1)
    try:
        signal.raise_signal(signal.SIGINT)
    finally:
        signal.set_wakeup_fd(listener, warn_on_full_buffer=False)


@contextmanager
def as_interrupts(outlook: str, record: Callable[[], None]) -> Iterator[Callable[[], int]]:
    """Turn the other stop signals into Ctrl-C, for libraries that have no other way to be stopped.

    Gives a function that returns the exit code for the signal that came. An interrupt that is not caught becomes
    :class:`Stopped` with ``outlook``, after ``record`` has written what was cut short. A second signal ends the
    process, after ``record``, if the main thread does not come to it.
    """
    global _state
    came = [int(signal.SIGINT)]

    def interrupt(number: int, _frame: FrameType | None) -> None:
        came[0] = number
        interrupt_self()

    main = threading.current_thread() is threading.main_thread()
    before = {number: signal.getsignal(number) for number in _SIGNALS if main and number != signal.SIGINT}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, interrupt)
    listener = _Listener(record) if main else None
    outer, _state = _state, _State()
    try:
        yield lambda: 128 + came[0]
    except KeyboardInterrupt:
        record()
        stopped = Stopped(came[0])
        stopped.outlook = outlook
        raise stopped from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if listener is not None:
            listener.close()
        _state = outer
