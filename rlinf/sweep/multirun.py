"""Grids from the command line: `rlinf train FILE --multirun algorithm.group_size=4,8 run.seed=0,1,2`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rlinf.base.hydra_words import replacement
from rlinf.config import ConfigErrors, ConfigProblem
from rlinf.config.problems import COMMAND_LINE
from rlinf.config.reader import SECTIONS, Reader
from rlinf.config.recipes import located
from rlinf.sweep.cli import run_sweep
from rlinf.sweep.load import Sweep, usual_metric
from rlinf.sweep.schema import SpaceEntry, SweepConfig
from rlinf.sweep.settings import plan_trials
from rlinf.sweep.validate import validate


def multirun(file: str, overrides: Sequence[str]) -> int:
    """Run every combination; raise ConfigErrors, with those of all combinations, before the first starts."""
    sweep = sweep_of(located(file), overrides)
    plans = plan_trials(sweep)
    validate(sweep, plans)
    return run_sweep(sweep, plans)


def sweep_of(file: Path, overrides: Sequence[str]) -> Sweep:
    """Build the sweep that the words on the command line describe: several values vary, a single one is fixed.

    It lives in `run.dir`, if that is given, else in runs/sweeps/NAME-multirun.
    """
    reader = Reader()
    if not file.is_file():
        reader.read_file(file)  # reports what is there instead
        raise ConfigErrors(reader.problems)
    fixed: dict[str, object] = {}
    space: dict[str, SpaceEntry] = {}
    seeds: list[Any] = [0]
    for override in overrides:
        key, equals, text = override.lstrip("+").partition("=")
        if not equals or replacement(override, SECTIONS) is not None:
            reader.read_overrides([override])  # words the mistake
            continue
        values = [_value(reader, key, part) for part in _split_values(text)]
        if key == "run.seed":
            seeds = values
        elif len(values) > 1:
            space[key] = SpaceEntry(grid=values)
        else:
            fixed[key] = values[0]
    wrong = [seed for seed in seeds if not isinstance(seed, int)]
    if wrong:
        message = f"run.seed={wrong[0]} is no whole number."
        reader.problems.append(ConfigProblem(COMMAND_LINE, None, "run.seed", message, "For example: run.seed=0,1,2."))
    if reader.problems:
        raise ConfigErrors(reader.problems)
    folder = str(fixed.pop("run.dir", "runs/sweeps/{name}"))
    config = SweepConfig(
        base=os.path.relpath(file.resolve()),
        name=f"{file.stem}-multirun",
        dir=folder,
        set=fixed,
        space=space,
        seeds=seeds,
        metric=usual_metric(file, fixed),
    )
    # The base is relative to where the command is given, as if the sweep file lay there.
    return Sweep(config, Path(COMMAND_LINE), {})


def _split_values(text: str) -> list[str]:
    """At commas that stand in no bracket or quotes.

    >>> _split_values("4,8,[1, 2]")
    ['4', '8', '[1, 2]']
    """
    parts, depth, quote = [""], 0, ""
    for letter in text:
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        depth += (letter in "[{(") - (letter in "]})") if not quote else 0
        if letter == "," and depth == 0 and not quote:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


def _value(reader: Reader, key: str, text: str) -> object:
    located = reader.read_value(key, text)
    return None if located is None else located.plain()
