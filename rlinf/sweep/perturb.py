"""How a setting changes when a trial takes over a better one's checkpoint (Jaderberg et al., arXiv:1711.09846).

Each key is drawn again with probability 1/4; else a number becomes 0.8 or 1.2 times itself, within its bounds, and a
choice its neighbour in the list. Links and conditions are resolved again. Draws come from streams keyed by trial, step
and key.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rlinf.base.random_streams import numpy_generator
from rlinf.config import ConfigErrors
from rlinf.sweep.load import Sweep, split_keys
from rlinf.sweep.schema import SpaceEntry
from rlinf.sweep.settings import Setting, complete, draw_from
from rlinf.sweep.validate import trial_config

_FACTORS, _REDRAWN = (0.8, 1.2), 0.25
# Settings to try; where all are invalid, the better trial's own setting is kept.
_ATTEMPTS = 16


def perturbed(sweep: Sweep, setting: Mapping[str, Any], *, trial: int, step: int) -> Setting:
    """A valid neighbour of ``setting`` for trial number ``trial``, which takes it over at ``step``."""
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
    """The value of an entry of the space in a setting (a list for several keys together); None where it is not set."""
    keys = split_keys(names)
    if not all(key in setting for key in keys):
        return None
    return setting[names] if len(keys) == 1 else [setting[key] for key in keys]


def _neighbour(sweep: Sweep, setting: Mapping[str, Any], place: tuple[int, ...]) -> Callable[[str, SpaceEntry], Any]:
    def draw(names: str, entry: SpaceEntry) -> Any:
        generator = numpy_generator(sweep.config.seed, "perturb", *place, names)
        value = value_of(names, setting)
        if value is None or generator.uniform() < _REDRAWN:
            return draw_from(entry, generator)
        up = bool(generator.integers(2))
        if entry.choice is not None:
            return _beside(entry.choice, value, up)
        low, high = entry.uniform or entry.loguniform or entry.integer or (value, value)
        moved = value * _FACTORS[up]
        if entry.integer is not None:
            # At least by one: small numbers would be rounded back to themselves.
            moved = max(round(moved), value + 1) if up else min(round(moved), value - 1)
        return min(max(moved, low), high)

    return draw


def _beside(options: list[object], value: Any, up: bool) -> object:
    place = options.index(value) + (1 if up else -1)
    return options[min(max(place, 0), len(options) - 1)]
