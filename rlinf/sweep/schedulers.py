"""Who is stopped early, and who continues another one's checkpoint."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ray.tune.experiment import Trial
from ray.tune.schedulers import ASHAScheduler, FIFOScheduler, PopulationBasedTraining, TrialScheduler

from rlinf.base.random_streams import numpy_generator
from rlinf.config import ConfigErrors
from rlinf.sweep.load import Sweep, split_keys
from rlinf.sweep.schema import SpaceEntry
from rlinf.sweep.settings import Setting, complete, draw_from
from rlinf.sweep.validate import trial_config

# How a setting changes when a trial takes over a better one's checkpoint (Jaderberg et al., arXiv:1711.09846).
# Each key is drawn again with probability 1/4; else a number becomes 0.8 or 1.2 times itself, within its bounds, and a
# choice its neighbour in the list. Links and conditions are resolved again. Draws come from streams keyed by trial,
# step and key.
_FACTORS, _REDRAWN = (0.8, 1.2), 0.25
# Settings to try; where all are invalid, the better trial's own setting is kept.
_ATTEMPTS = 16


def perturbed(sweep: Sweep, setting: Mapping[str, Any], *, trial: int, step: int) -> Setting:
    """Draw a valid neighbour of ``setting`` for trial number ``trial``, which takes it over at ``step``."""
    space = sweep.config.space
    grids = {names: value_of(names, setting) for names, entry in space.items() if entry.grid is not None}
    for attempt in range(_ATTEMPTS):
        near = complete(space, grids, _neighbour(sweep, setting, (trial, step, attempt)))
        try:
            trial_config(sweep, near, seed=sweep.config.seeds[0], run_dir=sweep.folder / "trial")
        except ConfigErrors:
            continue
        return near
    return dict(setting)


def value_of(names: str, setting: Mapping[str, Any]) -> Any:
    """Return the value of an entry of the space in a setting (a list for several keys); None if it is not set."""
    keys = split_keys(names)
    if not all(key in setting for key in keys):
        return None
    return setting[names] if len(keys) == 1 else [setting[key] for key in keys]


def _neighbour(sweep: Sweep, setting: Mapping[str, Any], index: tuple[int, ...]) -> Callable[[str, SpaceEntry], Any]:
    def draw(names: str, entry: SpaceEntry) -> Any:
        generator = numpy_generator(sweep.config.seed, "perturb", *index, names)
        value = value_of(names, setting)
        if value is None or generator.uniform() < _REDRAWN:
            return draw_from(entry, generator)
        up = bool(generator.integers(2))
        if entry.choice is not None:
            position = entry.choice.index(value) + (1 if up else -1)
            return entry.choice[min(max(position, 0), len(entry.choice) - 1)]
        low, high = entry.uniform or entry.loguniform or entry.integer or (value, value)
        moved = value * _FACTORS[up]
        if entry.integer is not None:
            # At least by one: small numbers would be rounded back to themselves.
            moved = max(round(moved), value + 1) if up else min(round(moved), value - 1)
        return min(max(moved, low), high)

    return draw


# Without a budget of steps a rung is never out of reach.
_MANY_STEPS = 100_000


def scheduler_of(sweep: Sweep) -> TrialScheduler:
    """Build the scheduler that `scheduler` names."""
    schedule, steps = sweep.config.schedule, sweep.config.budget.steps
    if schedule.name == "asha":
        return _RememberingAsha(
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
            # What changes lies under this key of Tune's configuration; `_get_new_config` changes it.
            hyperparam_mutations={"trial": {}},
            require_attrs=False,
        )
    return FIFOScheduler()


class _RememberingAsha(ASHAScheduler):
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
