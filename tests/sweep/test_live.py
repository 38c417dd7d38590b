"""What is shown while a sweep runs."""

import io
from collections.abc import Set
from pathlib import Path

import pytest
from rich.console import Console
from sweep_files import load_sweep, write_sweep_file

from rlinf.sweep import live
from rlinf.sweep.live import LiveView


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(live, "time", found)
    return found


def view_of(
    folder: Path,
    text: str = "",
    *,
    total: int = 4,
    done: Set[str] = frozenset(),
    begun: Set[str] = frozenset(),
    terminal: bool = False,
) -> LiveView:
    sweep = load_sweep(write_sweep_file(folder, f"budget: {{steps: 10{text}}}"))
    console = Console(file=io.StringIO(), force_terminal=terminal, width=110)
    return LiveView(sweep, total=total, done_before=done, begun_before=begun, console=console)


def printed(view: LiveView) -> str:
    assert isinstance(view.console.file, io.StringIO)
    return view.console.file.getvalue()


def test_a_line_for_each_event_without_a_terminal(tmp_path: Path, clock: Clock) -> None:
    with view_of(tmp_path) as view:
        view.started("0000_lr=1", {"lr": 1.0})
        view.started("0001_lr=2", {"lr": 2.0})
        view.reported("0000_lr=1", 5, 0.25)
        clock.now += 60
        view.reported("0000_lr=1", 10, 0.5)
        view.ended("0000_lr=1", "finished")
        view.failed("0001_lr=2", "Traceback: [it] fell over", again=True)
        view.started("0001_lr=2", {"lr": 0.5})
    lines = printed(view).splitlines()
    assert "4 trials" in lines[0]
    assert lines[1:3] == ["started   0000_lr=1", "started   0001_lr=2"]
    assert "finished  0000_lr=1" in lines[3]
    assert "0.5 at step 10  1/4 trials, about 90 s left" in lines[3]
    assert lines[4:6] == ["0001_lr=2 failed, and will be tried again", "Traceback: [it] fell over"]
    assert "goes on with lr=0.5" in lines[6]


def test_the_table_has_what_failed_and_what_runs_on_top(tmp_path: Path, clock: Clock) -> None:
    view = view_of(tmp_path, terminal=True, total=30)
    for number in range(20):
        view.started(f"{number:04d}", {})
        view.reported(f"{number:04d}", number % 10, number / 100)
        view.ended(f"{number:04d}", "stopped" if number % 2 else "finished")
    view.started("0020", {})
    view.failed("0020", "no", again=False)
    view.started("0021", {})
    view.console.print(view)
    output = printed(view)
    assert output.index("0020") < output.index("0021") < output.index("0018") < output.index("0016")
    assert "and 6 more; 8 not started" in output
    assert "best so far: 0.19 by 0019" in output


def test_a_paused_trial_takes_no_time(tmp_path: Path, clock: Clock) -> None:
    view = view_of(tmp_path, total=2)
    view.started("a", {})
    clock.now += 10
    view.paused({"a"})
    clock.now += 500
    view.started("a", {})
    clock.now += 10
    view.ended("a", "finished")
    assert view.trials["a"].seconds == 20
    assert view.progress() == "1/2 trials, about 20 s left"


def test_a_trial_that_ends_again_after_a_kill_is_counted_once(tmp_path: Path, clock: Clock) -> None:
    view = view_of(tmp_path, total=3, done={"a", "b"}, terminal=True)
    assert view.progress() == "2/3 trials"
    view.started("b", {})
    view.ended("b", "finished")
    assert view.progress().startswith("2/3 trials")
    view.started("c", {})
    view.ended("c", "stopped")
    assert view.progress() == "3/3 trials"
    view.console.print(view)
    assert "0 not started, 1 done before" in printed(view)


def test_a_trial_that_is_continued_does_not_shorten_the_estimate(tmp_path: Path, clock: Clock) -> None:
    view = view_of(tmp_path, total=4, done={"a"}, begun={"b"})
    view.started("b", {})
    clock.now += 1
    view.ended("b", "finished")
    assert view.progress() == "2/4 trials"
    view.started("c", {})
    clock.now += 30
    view.ended("c", "finished")
    assert view.progress() == "3/4 trials, about 30 s left"


def test_the_budget_of_time_ends_once_and_bounds_what_is_left(tmp_path: Path, clock: Clock) -> None:
    view = view_of(tmp_path, ", wall_time_s: 50", total=9)
    assert view.progress() == "0/9 trials, about 50 s left"
    assert not view.time_is_up()
    clock.now += 51
    assert view.time_is_up()
    assert not view.time_is_up()
    assert view.out_of_time
