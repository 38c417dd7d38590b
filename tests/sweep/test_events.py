"""What becomes of a trial's record where others end it."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sweep_files import load_sweep, write_sweep_file

pytest.importorskip("ray.tune")

from rlinf.sweep.events import Events
from rlinf.sweep.live import LiveView
from rlinf.sweep.records import TrialRecord


def trial_of(folder: Path, status: str, error: str | None = None) -> tuple[Events, Any, TrialRecord]:
    sweep = load_sweep(write_sweep_file(folder, ""))
    record = TrialRecord(0, {}, 0, status, error=error, folder=sweep.folder / "trials" / "0000")
    record.write()
    plan = {"number": 0, "setting": {}, "seed": 0, "folder": "0000"}
    trial = SimpleNamespace(config={"trial": plan}, status="RUNNING", get_error=lambda: "the worker died (OOM)")
    return Events(LiveView(sweep, total=1, done_before=set())), trial, record


@pytest.mark.parametrize(("before", "after"), [("running", "stopped"), ("finished", "finished")])
def test_only_what_still_ran_was_stopped(tmp_path: Path, before: str, after: str) -> None:
    events, trial, record = trial_of(tmp_path, before)
    events.on_trial_complete(1, [trial], trial)
    assert TrialRecord.read(record.folder).status == after
    assert events.view.trials["0000"].status == after


def test_an_actor_that_died_without_a_word_is_recorded_as_a_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    events, trial, record = trial_of(tmp_path, "running")
    events.on_trial_recover(1, [trial], trial)
    found = TrialRecord.read(record.folder)
    assert (found.status, found.failures) == ("failed", 1)
    assert found.error == "the trial's actor died: the worker died (OOM)"
    assert "the worker died" in capsys.readouterr().out


def test_a_failure_is_reported_with_the_runs_own_traceback(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    events, trial, record = trial_of(tmp_path, "failed", "Traceback: it fell over")
    events.on_trial_error(1, [trial], trial)
    assert "it fell over" in capsys.readouterr().out
    assert TrialRecord.read(record.folder).failures == 0
