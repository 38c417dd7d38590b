"""The timeline of an iteration: what ran when, in every process, as a trace that Perfetto and Chrome open.

The form is that of Chrome's "Trace Event Format": complete events (``ph: X``) with microseconds, a process for each
process (driver, conversations, each worker) and a thread for each track.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from rlinf.base.durable import write_atomically
from rlinf.base.timeline import DRIVER, Span

RecordSpans = Callable[[bool], Sequence[Span]]
"""Begins to record in all processes (true), or ends it and returns the spans (false)."""
FOLDER = "timeline"
_log = logging.getLogger(__name__)


class StepTimeline:
    """Records the iterations that are due, and writes each to ``timeline/step_000010.json``."""

    def __init__(
        self,
        folder: Path,
        record: RecordSpans | None,
        *,
        every: int,
        send: Callable[[Sequence[Span], int], None] | None = None,
    ) -> None:
        """``every``: iterations from one timeline to the next, counted from the first; 0 records none. ``send`` is
        also given the spans of each, and its step."""
        self._folder, self._record, self._every, self._send = folder / FOLDER, record, every, send
        self._open = False

    def begin(self, step: int) -> None:
        """Begin to record, if the iteration after ``step`` finished ones is due."""
        if self._record is not None and self._every and step % self._every == 0:
            self._record(True)
            self._open = True

    def end(self, step: int) -> None:
        """Write the spans of iteration ``step``, if they are recorded."""
        if not self._open or self._record is None:
            return
        self._open = False
        spans = self._record(False)
        path = self._folder / f"step_{step:06d}.json"
        path.parent.mkdir(exist_ok=True)
        write_atomically(path, json.dumps(trace(spans, step)))
        if self._send is not None:
            self._send(spans, step)
        _log.debug("step %d: %d spans", step, len(spans))


def trace(spans: Sequence[Span], step: int) -> dict[str, Any]:
    """Return spans as a Chrome trace: times in microseconds from the first span on, the driver's process first."""
    start = min((span.begin_s for span in spans), default=0.0)
    events: list[dict[str, Any]] = []
    for number, (process, own) in enumerate(by_process(spans).items()):
        events.append(_name("process_name", process, number, 0))
        for track, (name, members) in enumerate(tracks_of(own)):
            events.append(_name("thread_name", name, number, track))
            events += [
                {
                    "name": span.name,
                    "ph": "X",
                    "pid": number,
                    "tid": track,
                    "ts": round((span.begin_s - start) * 1e6),
                    "dur": round(span.seconds * 1e6),
                    "args": dict(span.details),
                }
                for span in members
            ]
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": {"step": step}}


def _name(kind: str, name: str, process: int, thread: int) -> dict[str, Any]:
    return {"name": kind, "ph": "M", "pid": process, "tid": thread, "args": {"name": name}}


def by_process(spans: Sequence[Span]) -> dict[str, list[Span]]:
    """Return the spans of each process, the driver's first."""
    processes = sorted({span.process for span in spans}, key=lambda process: (process != DRIVER, process))
    return {process: [span for span in spans if span.process == process] for process in processes}


def tracks_of(spans: Sequence[Span]) -> Iterator[tuple[str, list[Span]]]:
    """Yield (name, spans) of each track: spans of one track are disjoint or nested, as viewers require it."""
    unnamed: list[_Track] = []
    named: dict[str, list[_Track]] = {}
    for span in sorted(spans, key=lambda one: (one.begin_s, -one.seconds)):
        tracks = named.setdefault(span.track, []) if span.track else unnamed
        free = next((track for track in tracks if track.takes(span)), None)
        if free is None:
            free = _Track()
            tracks.append(free)
        free.add(span)
    for number, track in enumerate(unnamed):
        yield ("calls" if number == 0 else f"calls {number + 1}", track.spans)
    for name, tracks in named.items():
        for number, track in enumerate(tracks):
            yield (name if number == 0 else f"{name} ({number + 1})", track.spans)


class _Track:
    """Spans that are disjoint or nested, by their beginnings."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self._ends: list[float] = []

    def takes(self, span: Span) -> bool:
        """Return whether ``span``, which begins after all spans here, is disjoint from them or inside of one."""
        open_ends = [end for end in self._ends if end > span.begin_s]
        return not open_ends or span.begin_s + span.seconds <= min(open_ends)

    def add(self, span: Span) -> None:
        self._ends = [end for end in self._ends if end > span.begin_s]
        self._ends.append(span.begin_s + span.seconds)
        self.spans.append(span)
