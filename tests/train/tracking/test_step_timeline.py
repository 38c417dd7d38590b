"""Traces of iterations: the form that Perfetto reads."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from rlinf.base.timeline import Span
from rlinf.train.tracking.step_timeline import StepTimeline, trace


@pytest.mark.parametrize("seed", range(60))
def test_spans_of_a_track_are_disjoint_or_nested(seed: int) -> None:
    drawn = random.Random(seed)
    spans = [
        Span(
            f"s{i}",
            drawn.randrange(50),
            drawn.randrange(30),
            drawn.choice(["env 0", "driver"]),
            drawn.choice(["", "row 1"]),
        )
        for i in range(drawn.randrange(30))
    ]
    events = [event for event in trace(spans, 1)["traceEvents"] if event["ph"] == "X"]
    assert sorted(event["name"] for event in events) == sorted(span.name for span in spans)
    by_track: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for event in events:
        by_track.setdefault((event["pid"], event["tid"]), []).append((event["ts"], event["ts"] + event["dur"]))
    for own in by_track.values():
        for first, second in ((a, b) for i, a in enumerate(own) for b in own[i + 1 :]):
            disjoint = second[0] >= first[1] or first[0] >= second[1]
            nested = first[0] <= second[0] <= second[1] <= first[1] or second[0] <= first[0] <= first[1] <= second[1]
            assert disjoint or nested


def test_times_are_microseconds_from_the_first_span_and_the_driver_comes_first() -> None:
    content = trace([Span("b", 11.0, 0.25, "env 0", ""), Span("a", 10.0, 2.0, "driver", "")], 7)
    names = [event["args"]["name"] for event in content["traceEvents"] if event["name"] == "process_name"]
    spans = {event["name"]: (event["ts"], event["dur"]) for event in content["traceEvents"] if event["ph"] == "X"}
    assert names == ["driver", "env 0"]
    assert spans == {"a": (0, 2_000_000), "b": (1_000_000, 250_000)}
    assert content["otherData"] == {"step": 7}


def test_iterations_that_are_due_are_written(tmp_path: Path) -> None:
    calls: list[bool] = []

    def record(on: bool) -> list[Span]:
        calls.append(on)
        return [Span("update", 1.0, 0.5, "driver", "")]

    line = StepTimeline(tmp_path, record, every=2)
    for step in range(4):
        line.begin(step)
        line.end(step + 1)
    assert calls == [True, False, True, False]
    assert sorted(path.name for path in tmp_path.rglob("*.json")) == ["step_000001.json", "step_000003.json"]
    assert json.loads((tmp_path / "timeline/step_000003.json").read_text())["otherData"]["step"] == 3


def test_nothing_is_recorded_without_trace_every(tmp_path: Path) -> None:
    def record(on: bool) -> list[Span]:
        raise AssertionError("recorded")

    line = StepTimeline(tmp_path, record, every=0)
    line.begin(0)
    line.end(1)
    assert list(tmp_path.iterdir()) == []
