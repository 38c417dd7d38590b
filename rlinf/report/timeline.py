"""The timelines of a run as a page shows them: what took long, by name, and a process for each process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlinf.base.errors import UserError
from rlinf.base.json_files import read_json_file
from rlinf.report.runs import require_inside
from rlinf.train.tracking.step_timeline import FOLDER

# A page stays below what a browser opens at once: it has the newest timelines, and of each what took longest.
MAX_TIMELINES = 2
MAX_TRACKS = 24
"""Of a process: those whose spans end last, which held the step up."""
MAX_SPANS = 2000
_US = 1e-6


@dataclass(frozen=True)
class _Span:
    """A complete event of a trace; seconds from the beginning of the step."""

    name: str
    process: int
    track: int
    begin_s: float
    seconds: float
    details: Mapping[str, Any]

    @property
    def end_s(self) -> float:
        return self.begin_s + self.seconds


def timelines(run: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the newest timelines of a run directory, the newest first, and a line for each damaged file."""
    results: list[dict[str, Any]] = []
    notes: list[str] = []
    for path in sorted((run / FOLDER).glob("step_*.json"), reverse=True):
        if len(results) == MAX_TIMELINES:
            break
        try:
            content = read_json_file(require_inside(path, run)) or {}
            results.append(_timeline(content, path.name))
        except UserError as error:
            notes.append(str(error))
        except (KeyError, TypeError, ValueError, AttributeError):
            notes.append(f"{path} is no trace of a step: it is left out")
    return results, notes


def _timeline(content: Mapping[str, Any], file: str) -> dict[str, Any]:
    """Return the content of a trace for the page; KeyError, TypeError or ValueError if it is none."""
    events: Sequence[Mapping[str, Any]] = content["traceEvents"]
    processes = {int(one["pid"]): str(one["args"]["name"]) for one in events if one["name"] == "process_name"}
    tracks = {
        (int(one["pid"]), int(one["tid"])): str(one["args"]["name"]) for one in events if one["name"] == "thread_name"
    }
    spans = [
        _Span(
            str(one["name"]),
            int(one["pid"]),
            int(one["tid"]),
            float(one["ts"]) * _US,
            float(one["dur"]) * _US,
            dict(one["args"]),
        )
        for one in events
        if one["ph"] == "X"
    ]
    shown = {process: _last_tracks([span for span in spans if span.process == process]) for process in processes}
    kept = sorted((span for span in spans if span.track in shown[span.process]), key=lambda span: -span.seconds)
    kept = kept[:MAX_SPANS]
    names = list(dict.fromkeys(span.name for span in kept))
    return {
        "file": f"{FOLDER}/{file}",
        "step": int(content["otherData"]["step"]),
        "seconds": max((span.end_s for span in spans), default=0.0),
        "names": names,
        "processes": [
            {
                "name": name,
                "hidden": len({span.track for span in spans if span.process == process}) - len(shown[process]),
                "tracks": [
                    {
                        "name": tracks.get((process, track), ""),
                        "spans": [
                            _drawn(span, names) for span in kept if (span.process, span.track) == (process, track)
                        ],
                    }
                    for track in shown[process]
                ],
            }
            for process, name in processes.items()
        ],
        "longest": _longest(spans, processes, tracks),
        "left_out": len(spans) - len(kept),
    }


def _last_tracks(spans: Sequence[_Span]) -> list[int]:
    """Return the tracks that end last, in their order."""
    ends: dict[int, float] = {}
    for span in spans:
        ends[span.track] = max(ends.get(span.track, 0.0), span.end_s)
    return sorted(sorted(ends, key=lambda track: -ends[track])[:MAX_TRACKS])


def _drawn(span: _Span, names: Sequence[str]) -> list[Any]:
    """Return [number of the name, begin, seconds, details] of a span."""
    details = ", ".join(f"{name} {value}" for name, value in span.details.items())
    return [names.index(span.name), round(span.begin_s, 4), round(span.seconds, 4), details]


def _longest(
    spans: Sequence[_Span], processes: Mapping[int, str], tracks: Mapping[tuple[int, int], str]
) -> list[dict[str, Any]]:
    """Return for each name of spans how often it ran, for how long in all, and its longest span, by total time."""
    by_name: dict[str, list[_Span]] = {}
    for span in spans:
        by_name.setdefault(span.name, []).append(span)
    rows = []
    for name, own in by_name.items():
        longest = max(own, key=lambda span: span.seconds)
        where = f"{processes[longest.process]}, {tracks.get((longest.process, longest.track), '')}".rstrip(", ")
        rows.append(
            {
                "name": name,
                "count": len(own),
                "total_s": round(sum(span.seconds for span in own), 4),
                "longest_s": round(longest.seconds, 4),
                "longest": where,
            }
        )
    return sorted(rows, key=lambda row: -float(str(row["total_s"])))
