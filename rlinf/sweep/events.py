"""What Tune tells about trials, handed to the live view."""

from __future__ import annotations

from typing import Any

from ray.tune import Callback

from rlinf.sweep.live import LiveView
from rlinf.sweep.settings import plan_of


class Events(Callback):
    """Without state, since Tune saves its callbacks."""

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        if LiveView.current is not None:
            LiveView.current.started(_name(trial, LiveView.current))

    def on_trial_result(self, iteration: int, trials: list[Any], trial: Any, result: Any, **info: Any) -> None:
        if LiveView.current is not None:
            LiveView.current.reported(_name(trial, LiveView.current), int(result["step"]), result["objective"])

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        if LiveView.current is not None:
            LiveView.current.ended(_name(trial, LiveView.current))

    def on_trial_recover(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        if LiveView.current is not None:
            LiveView.current.failed(_name(trial, LiveView.current), again=True)

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        if LiveView.current is not None:
            LiveView.current.failed(_name(trial, LiveView.current), again=False)


def _name(trial: Any, view: LiveView) -> str:
    """As the trial's folder is called."""
    return plan_of(trial.config, view.sweep.config.seeds)[1]
