"""Who is stopped early, and who continues another one's checkpoint."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ray.tune.experiment import Trial
from ray.tune.schedulers import ASHAScheduler, FIFOScheduler, PopulationBasedTraining, TrialScheduler

from rlinf.sweep.load import Sweep
from rlinf.sweep.perturb import perturbed

# Without a budget of steps a rung is never out of reach.
_MANY_STEPS = 100_000


def scheduler_of(sweep: Sweep) -> TrialScheduler:
    """As `scheduler` says."""
    schedule, steps = sweep.config.schedule, sweep.config.budget.steps
    if schedule.name == "asha":
        return RememberingAsha(
            sweep.folder / "asha.pkl",
            time_attr="step",
            grace_period=schedule.grace_steps,
            reduction_factor=schedule.reduction,
            # Above the last step: a trial that gets there ends by itself, and is finished instead of stopped.
            max_t=(steps or _MANY_STEPS) + 1,
        )
    if schedule.name == "pbt":
        return Population(
            sweep,
            time_attr="step",
            perturbation_interval=schedule.perturb_every,
            quantile_fraction=schedule.quantile,
            # What changes lies under this key of Tune's configuration; how, `_get_new_config` says.
            hyperparam_mutations={"trial": {}},
            require_attrs=False,
        )
    return FIFOScheduler()


class RememberingAsha(ASHAScheduler):
    """ASHA whose rungs outlive the driver: Tune saves trials and searchers, but no schedulers."""

    def __init__(self, path: Path, **options: Any) -> None:
        super().__init__(**options)
        self._path = path
        if path.exists():
            self.restore(str(path))
            # Tune sets a scheduler's metric itself, and refuses one that has received before.
            self._metric, self._mode = None, None

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: dict) -> str:
        decision: str = super().on_trial_result(tune_controller, trial, result)
        aside = self._path.with_suffix(".writing")
        self.save(str(aside))
        os.replace(aside, self._path)
        return decision


class Population(PopulationBasedTraining):
    """Tune decides who copies whom; the new setting stays in the space, and the trial keeps its own name."""

    def __init__(self, sweep: Sweep, **options: Any) -> None:
        super().__init__(**options)
        self._sweep = sweep

    def _get_new_config(self, trial: Trial, trial_to_clone: Trial) -> tuple[dict, dict]:
        own, donor = trial.config["trial"], trial_to_clone.config["trial"]
        step = int(trial_to_clone.last_result["step"])
        setting = perturbed(self._sweep, donor["setting"], trial=own["number"], step=step)
        return {"trial": {**own, "setting": setting}}, {}
