"""Writes Tune's events into the records of trials, and hands them to the live view."""

from __future__ import annotations

from typing import Any

from ray.tune import Callback

from rlinf.base.redaction import redacted
from rlinf.base.signals import interrupt_self
from rlinf.sweep.live import LiveView
from rlinf.sweep.records import TrialRecord
from rlinf.sweep.settings import plan_of


class Events(Callback):
    """A trial's own process writes `running`, `finished` and `failed`; what others do to it is written here."""

    def __init__(self, view: LiveView) -> None:
        self.view = view

    def on_step_end(self, iteration: int, trials: list[Any], **info: Any) -> None:
        self.view.paused({self._name(trial) for trial in trials if trial.status == "PAUSED"})
        if self.view.time_is_up():
            # As if a user had interrupted: Tune saves its state, ends the trials and lets them go on the next time.
            interrupt_self()

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        plan, name = plan_of(trial.config, self.view.sweep.config.seeds)
        self.view.started(name, plan.setting)

    def on_trial_result(self, iteration: int, trials: list[Any], trial: Any, result: Any, **info: Any) -> None:
        self.view.reported(self._name(trial), int(result["step"]), result["objective"])

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        record = self._record(trial)
        if record is not None and record.status == "running":
            record.status = "stopped"
            record.write()
        self.view.ended(self._name(trial), "finished" if record is None else record.status)

    def on_trial_recover(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self.view.failed(self._name(trial), self._failure(trial), again=True)

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self.view.failed(self._name(trial), self._failure(trial), again=False)

    def _failure(self, trial: Any) -> str:
        """Return the traceback in the trial's record; write it now if the trial could not do so itself."""
        record = self._record(trial)
        if record is not None and record.status == "failed" and record.error:
            return record.error
        error = redacted(str(trial.get_error() or "it could not be started"))
        if record is not None:
            record.status, record.error = "failed", f"the trial's actor died: {error}"
            record.failures += 1
            record.write()
        return error

    def _record(self, trial: Any) -> TrialRecord | None:
        folder = self.view.sweep.folder / "trials" / self._name(trial)
        return TrialRecord.read(folder) if (folder / "trial.json").exists() else None

    def _name(self, trial: Any) -> str:
        """As the trial's folder is called."""
        return plan_of(trial.config, self.view.sweep.config.seeds)[1]
