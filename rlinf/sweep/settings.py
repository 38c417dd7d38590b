"""Which settings a sweep tries: a pure function of the sweep, so that the same file gives the same trials."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from numpy.random import Generator

from rlinf.base.random_streams import numpy_generator
from rlinf.sweep.load import Sweep, short_names, split_keys
from rlinf.sweep.schema import SpaceEntry, SweepConfig

Setting = dict[str, Any]
_LONGEST_NAME = 120
SEED_INDEX = "place"
"""Key of a searcher's suggestion: which of its setting's seeds a trial has."""


@dataclass(frozen=True)
class TrialPlan:
    """One run of the sweep."""

    number: int
    setting: Setting
    seed: int

    @property
    def folder_name(self) -> str:
        """
        >>> TrialPlan(7, {"algorithm.group_size": 8}, 1).folder_name
        '0007_group_size=8_seed=1'
        """
        names = short_names(list(self.setting))
        parts = [f"{names[key]}={_short(value)}" for key, value in self.setting.items()]
        seed = f"_seed={self.seed}"
        return "_".join([f"{self.number:04d}", *parts])[: _LONGEST_NAME - len(seed)] + seed


def plan_trials(sweep: Sweep) -> list[TrialPlan]:
    """All trials of a sweep whose settings are known beforehand (all but optuna's): settings times seeds."""
    settings = list(distinct(_enumerate_settings(sweep.config)))
    pairs = itertools.product(settings, sweep.config.seeds)
    return [TrialPlan(number, setting, seed) for number, (setting, seed) in enumerate(pairs)]


def plan_of(config: Mapping[str, Any], seeds: Sequence[int]) -> tuple[TrialPlan, str]:
    """Return the trial that a Tune configuration means, and its folder's name."""
    if "trial" in config:
        # Population-based training changes the setting on the way; the folder keeps its name.
        trial = config["trial"]
        return TrialPlan(trial["number"], dict(trial["setting"]), trial["seed"]), trial["folder"]
    position = int(config[SEED_INDEX])
    plan = TrialPlan(config["number"] * len(seeds) + position, dict(config["setting"]), seeds[position])
    return plan, plan.folder_name


def _enumerate_settings(config: SweepConfig) -> Iterator[Setting]:
    """Every combination of the grids; with drawn keys, combinations in turn until there are ``budget.trials``."""
    grids = [(names, listed) for names, entry in config.space.items() if (listed := entry.listed) is not None]
    combinations = [
        dict(zip([names for names, _ in grids], values, strict=True))
        for values in itertools.product(*(values for _, values in grids))
    ]
    count = config.budget.trials or len(combinations)
    for index in range(count):
        yield complete(config.space, combinations[index % len(combinations)], draw_number(config.seed, index))


def distinct(settings: Iterator[Setting]) -> Iterator[Setting]:
    """Without repetitions: a conditional key that is not set makes combinations equal."""
    seen = set()
    for setting in settings:
        mark = repr(sorted(setting.items()))
        if mark not in seen:
            seen.add(mark)
            yield setting


def repeated_draws(config: SweepConfig) -> str:
    """Return a sentence about settings that are drawn more than once; "" if all differ, or if a searcher chooses."""
    if config.search == "optuna" or config.budget.trials is None:
        return ""
    drawn = list(_enumerate_settings(config))
    different = len(list(distinct(iter(drawn))))
    if different == len(drawn):
        return ""
    once = "1 setting" if different == 1 else f"{different} settings"
    return (
        f"budget.trials: {len(drawn)} settings are drawn and only {different} differ, so {once} will be tried: each is "
        "drawn independently. To try every value of `choice` once, write `grid` instead."
    )


def complete(space: Mapping[str, SpaceEntry], chosen: Mapping[str, Any], draw: Any) -> Setting:
    """Build a setting from the grids' values and, for drawn keys, ``draw(names, entry)``.

    Links and conditions are resolved."""
    setting: Setting = {}
    for names, entry in space.items():
        if not all(_holds(setting.get(key), requested) for key, requested in entry.when.items()):
            continue
        if entry.like is not None:
            if entry.like in setting:
                setting[names] = _times(setting[entry.like], entry.times)
            continue
        value = chosen[names] if entry.listed is not None else draw(names, entry)
        keys = split_keys(names)
        setting.update(zip(keys, value, strict=True) if len(keys) > 1 else [(names, value)])
    return setting


def draw_number(seed: int, index: int) -> Any:
    """Return the draws of setting ``index``, each key from its own stream: a new key does not change the others."""

    def draw(names: str, entry: SpaceEntry) -> Any:
        return draw_from(entry, numpy_generator(seed, "sweep", index, names))

    return draw


def draw_from(entry: SpaceEntry, generator: Generator) -> Any:
    """Draw a value of an entry."""
    if entry.choice is not None:
        return entry.choice[int(generator.integers(len(entry.choice)))]
    if entry.integer is not None:
        return int(generator.integers(entry.integer[0], entry.integer[1] + 1))
    if entry.uniform is not None:
        return float(generator.uniform(*entry.uniform))
    assert entry.loguniform is not None
    low, high = (math.log(bound) for bound in entry.loguniform)
    return math.exp(float(generator.uniform(low, high)))


def draw_corner(index: int) -> Any:
    """Return the extremes of every key, for checks: an even ``index`` gives the lower ends."""

    def draw(names: str, entry: SpaceEntry) -> Any:
        options = entry.choice or entry.uniform or entry.loguniform or entry.integer
        assert options is not None
        return options[index % len(options)] if entry.choice is not None else options[index % 2]

    return draw


def _holds(value: Any, requested: Any) -> bool:
    return value in requested if isinstance(requested, list) else value == requested


def _times(value: Any, factor: float) -> Any:
    product = value * factor
    return int(product) if isinstance(value, int) and float(product).is_integer() else product


def _short(value: Any) -> str:
    text = f"{value:.3g}" if isinstance(value, float) else str(value)
    return re.sub(r"[^\w.+-]+", "-", text).strip("-")[:24]
