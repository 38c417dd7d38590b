"""What Tune tells about trials, handed to the live view."""

from __future__ import annotations

from typing import Any

from ray.tune import Callback

from rlinf.sweep.live import LiveView


class Events(Callback):
    """Without state, since Tune saves its callbacks."""

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        if LiveView.current is not None:
            LiveView.current.started(trial.trial_id, _name(trial))

    def on_trial_result(self, iteration: int, trials: list[Any], trial: Any, result: Any, **info: Any) -> None:
        if LiveView.current is not None:
            LiveView.current.reported(trial.trial_id, int(result["step"]), result["objective"])

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        if LiveView.current is not None:
            LiveView.current.ended(trial.trial_id)

    def on_trial_recover(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        if LiveView.current is not None:
            LiveView.current.failed(trial.trial_id, again=True)

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        if LiveView.current is not None:
            LiveView.current.failed(trial.trial_id, again=False)


def _name(trial: Any) -> str:
    """As the trial's folder is called; a searcher's trial by its number, which its folder begins with."""
    given = trial.config.get("trial")
    return str(given["folder"]) if given else f"{int(trial.trial_id.rpartition('_')[2]):04d}"
