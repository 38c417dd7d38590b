"""Timelines as a page shows them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rlinf.base.timeline import Span
from rlinf.report.timeline import MAX_TRACKS, timelines
from rlinf.train.tracking.step_timeline import trace


def write(run: Path, step: int, spans: list[Span]) -> None:
    (run / "timeline").mkdir(exist_ok=True)
    (run / f"timeline/step_{step:06d}.json").write_text(json.dumps(trace(spans, step)))


def test_what_took_long_is_named_with_where(tmp_path: Path) -> None:
    spans = [
        Span("collect", 0.0, 5.0, "driver", ""),
        Span("tool search", 1.0, 0.5, "env 0", "row 1", {"row": 1}),
        Span("tool search", 1.0, 3.0, "env 1", "row 7", {"row": 7}),
    ]
    write(tmp_path, 10, spans)
    (line,), notes = timelines(tmp_path)
    assert notes == []
    assert (line["step"], line["seconds"], line["left_out"]) == (10, 5.0, 0)
    assert line["longest"][0] == {
        "name": "collect",
        "count": 1,
        "total_s": 5.0,
        "longest_s": 5.0,
        "longest": "driver, calls",
    }
    assert line["longest"][1] == {
        "name": "tool search",
        "count": 2,
        "total_s": 3.5,
        "longest_s": 3.0,
        "longest": "env 1, row 7",
    }
    (process,) = [process for process in line["processes"] if process["name"] == "env 1"]
    assert process["tracks"] == [{"name": "row 7", "spans": [[line["names"].index("tool search"), 1.0, 3.0, "row 7"]]}]


def test_the_newest_come_first_and_a_process_shows_the_tracks_that_end_last(tmp_path: Path) -> None:
    spans = [Span("generation", 0.0, 1.0 + i, "conversations", f"task {i}") for i in range(MAX_TRACKS + 5)]
    for step in (1, 2, 3):
        write(tmp_path, step, spans)
    found, _ = timelines(tmp_path)
    assert [line["step"] for line in found] == [3, 2]
    (process,) = found[0]["processes"]
    assert process["hidden"] == 5
    assert {track["name"] for track in process["tracks"]} == {f"task {i}" for i in range(5, MAX_TRACKS + 5)}


@pytest.mark.parametrize("content", ["", "{", "[1]", '{"traceEvents": 3}', '{"traceEvents": [{"name": "x"}]}', "{}"])
def test_a_damaged_file_is_named_and_left_out(content: str, tmp_path: Path) -> None:
    write(tmp_path, 1, [Span("collect", 0.0, 5.0, "driver", "")])
    (tmp_path / "timeline/step_000002.json").write_text(content)
    (line,), (note,) = timelines(tmp_path)
    assert line["step"] == 1
    assert "step_000002.json" in note
