"""The recorder of spans."""

from __future__ import annotations

import threading
import time

import pytest

from rlinf.base import timeline


def test_nothing_is_recorded_before_begin_and_after_end() -> None:
    with timeline.span("early"):
        pass
    timeline.begin()
    with timeline.span("tool search", details={"row": 3}):
        time.sleep(0.01)
    (span,) = timeline.end()
    with timeline.span("late"):
        pass
    assert timeline.end() == []
    assert (span.name, span.process, span.details) == ("tool search", timeline.DRIVER, {"row": 3})
    assert span.seconds >= 0.01
    assert abs(span.begin_s + span.seconds - time.time()) < 5.0


def test_a_block_that_raises_is_recorded() -> None:
    timeline.begin()
    with pytest.raises(ValueError, match="bad"), timeline.span("reward"):
        raise ValueError("bad")
    assert [span.name for span in timeline.end()] == ["reward"]


def test_processes_are_those_of_the_running_worker() -> None:
    timeline.begin()
    with timeline.process("env 1"), timeline.span("step"):
        timeline.record("inside", time.monotonic(), process="conversations", track="task 1")
    with timeline.span("after"):
        pass
    assert [(span.name, span.process) for span in timeline.end()] == [
        ("inside", "conversations"),
        ("step", "env 1"),
        ("after", timeline.DRIVER),
    ]


def test_spans_of_threads_are_kept() -> None:
    timeline.begin()
    threads = [threading.Thread(target=timeline.record, args=(f"{i}", time.monotonic())) for i in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(int(span.name) for span in timeline.end()) == list(range(20))


def test_spans_beyond_the_limit_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline, "MAX_SPANS", 3)
    timeline.begin()
    for number in range(5):
        timeline.record(str(number), time.monotonic())
    assert [span.name for span in timeline.end()] == ["0", "1", "2", "2 more spans are left out"]
