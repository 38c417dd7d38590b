"""Spans of time: what ran from when to when in one process, for the timeline of a step.

A process records nothing until :func:`begin`. Spans are facts about the clock alone: no random stream, order or result
depends on whether they are recorded.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace

MAX_SPANS = 200_000
"""Spans that a process keeps of one timeline, about 40 MB; later ones are counted."""
DRIVER = "driver"

_process: ContextVar[str | None] = ContextVar("process", default=None)
_own_process = DRIVER


@dataclass(frozen=True)
class Span:
    """Something that ran.

    Example: ``Span("tool search", 1782400000.2, 0.8, "env 0", "row 3", {"row": 3})``
    """

    name: str
    begin_s: float
    """Seconds since the epoch."""
    seconds: float
    process: str
    """The worker, ``env 0``, or the driver."""
    track: str
    """Spans of one track of a process run one after another, or inside of each other; "" if that is unspecified."""
    details: Mapping[str, int | str] = field(default_factory=dict)


class _Recorder:
    """The spans of a process since :func:`begin`."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.left_out = 0
        # Spans are measured by a clock that never jumps, and written by one that all machines share.
        self._offset = time.time() - time.monotonic()

    def add(self, name: str, since: float, process: str, track: str, details: Mapping[str, int | str]) -> None:
        if len(self.spans) >= MAX_SPANS:
            self.left_out += 1
            return
        seconds = time.monotonic() - since
        self.spans.append(Span(name, since + self._offset, seconds, process, track, details))


_recorder: _Recorder | None = None


def begin() -> None:
    """Record spans from now on; those that were recorded before are dropped."""
    global _recorder
    _recorder = _Recorder()


def end() -> list[Span]:
    """Stop recording, and return the spans since :func:`begin`, by their ends."""
    global _recorder
    result, _recorder = _recorder, None
    if result is None:
        return []
    if result.left_out:
        last = result.spans[-1]
        result.spans.append(replace(last, name=f"{result.left_out} more spans are left out", seconds=0.0, track=""))
    return result.spans


def switch(on: bool) -> list[Span]:
    """Begin to record, or end it and return the spans."""
    if not on:
        return end()
    begin()
    return []


def recording() -> bool:
    """Return whether this process records spans."""
    return _recorder is not None


def record(
    name: str,
    since: float,
    *,
    process: str | None = None,
    track: str = "",
    details: Mapping[str, int | str] | None = None,
) -> None:
    """Record a span that began at ``since`` (``time.monotonic()``, seconds) and ends now.

    Without ``process`` it is in that of the running worker.
    """
    if _recorder is not None:
        _recorder.add(name, since, process or _process.get() or _own_process, track, details or {})


@contextmanager
def span(name: str, *, track: str = "", details: Mapping[str, int | str] | None = None) -> Iterator[None]:
    """Record the time that the block takes, also if it raises."""
    if _recorder is None:
        yield
        return
    since = time.monotonic()
    try:
        yield
    finally:
        record(name, since, track=track, details=details)


@contextmanager
def process(name: str) -> Iterator[None]:
    """Record the spans of the block under the name of a worker."""
    before = _process.set(name)
    try:
        yield
    finally:
        _process.reset(before)


def name_process(name: str) -> None:
    """Name the process of this process, which has one worker."""
    global _own_process
    _own_process = name
