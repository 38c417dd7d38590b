"""From a file or a mapping to a finished run, with the words of the YAML."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rlinf.base.errors import UserError
from rlinf.base.logs import requested_level, show
from rlinf.base.signals import raising_exits
from rlinf.base.user_code import kind_of
from rlinf.config import Config
from rlinf.config import load as load_file
from rlinf.config.loading import checked, resolve_reader
from rlinf.config.problems import Origin
from rlinf.config.reader import Reader
from rlinf.config.tree import Located, locate

if TYPE_CHECKING:
    from rlinf.planning.describe import Plan
    from rlinf.train.callbacks import Callback
    from rlinf.train.run import RunResult

_TRAINING = threading.RLock()
"""Held by the thread that trains; a callback of its run may train too."""


def load(source: str | Path | Mapping[str, object], *overrides: str) -> Config:
    """Load the typed, checked configuration of a YAML file, a recipe's name or nested data.

    ``key=value`` overrides are applied to it. Raises :class:`rlinf.config.ConfigErrors`, which lists every
    mistake with its position and fix.

    >>> load({"env": {"id": "CartPole-v1"}, "policy": {"name": "actor_critic"},
    ...       "algorithm": {"adv_type": "gae", "loss_type": "actor_critic"}}, "run.seed=3").run.seed
    3
    """
    wrong = [override for override in overrides if not isinstance(override, str)]
    if wrong:
        meant = "*overrides of a list" if isinstance(wrong[0], list | tuple) else "one text each"
        raise UserError(f"rlinf.load: an override is text, key=value, not {kind_of(wrong[0])}: give them as {meant}")
    if not isinstance(source, Mapping | str | Path):
        raise UserError(f"rlinf.load takes a path, a recipe or a mapping, not {kind_of(source)}: {source!r}")
    if isinstance(source, str) and "\n" in source:
        raise UserError("rlinf.load: this is the text of a YAML file: give its path, or yaml.safe_load(text)")
    if not isinstance(source, Mapping):
        return load_file(source, overrides)
    reader, origin = Reader(), Origin("mapping")
    located = locate(source, origin)
    _require_plain(located, "")
    reader.layers.append(located.branch or {})
    reader.read_overrides(overrides)
    return resolve_reader(reader, origin).config


def _require_plain(located: Located, key: str) -> None:
    """Raise UserError for an object that a file could not hold: runs are stored as files, and made again of them."""
    value = located.value
    if isinstance(value, dict | list):
        for name, child in value.items() if isinstance(value, dict) else [("", child) for child in value]:
            _require_plain(child, f"{key}.{name}".strip("."))
    elif value is not None and not isinstance(value, str | int | float):
        raise UserError(
            f"rlinf.load: {key} holds {kind_of(value)}, and a configuration holds text, numbers, lists and mappings: "
            'name a function as text ("module:function"), and write rows or a model to a file or folder, whose path '
            "stands here"
        )


def check(config: Config, *, build: bool = True) -> Plan:
    """Compute the plan of a run, in numbers: processes, batch, memory, steps.

    ``print`` shows it; nothing is started.

    ``build`` also makes environments, data and tokenizer as training would, prints what it finds, and raises
    UserError if training would fail; without it the configuration alone is checked, for runs on other machines.
    """
    from rlinf.planning.describe import plan

    config = _checked(config, "check")
    if build:
        from rlinf.commands.check import examine

        if examine(config):
            raise UserError("training would fail, or learn from something wrong: see what is printed above")
    return plan(config)


def _checked(config: object, called: str) -> Config:
    """Return the configuration, checked again if it was changed after it was loaded."""
    if not isinstance(config, Config):
        shown = json.dumps(config) if isinstance(config, str) else "..."
        raise UserError(
            f"rlinf.{called}: {config!r:.80} is {kind_of(config)}, and must be a configuration: rlinf.load({shown})"
        )
    return checked(config, f"the configuration given to rlinf.{called}")


def fit(config: Config, *, callbacks: Sequence[Callback] = (), report: bool = False) -> RunResult:
    """Train, or continue what is in ``config.run.dir``; the same call resumes a run that was killed.

    ``callbacks`` (:class:`rlinf.Callback`) run in this process between iterations, on Ray and locally alike. ``report``
    writes report.html at the end. A configuration that was changed after it was loaded (`dataclasses.replace`) is
    checked again: ConfigErrors lists every mistake. Log lines of level INFO and above go to standard error with time,
    level and process, unless the application has set up `logging` itself; RLINF_LOG=warning shows fewer.

    Raises UserError if another thread of this process trains: both would draw from torch's one random generator.
    """
    from rlinf.train.run import run

    config = _checked(config, "fit")
    show(requested_level() or "INFO", "driver")
    if not _TRAINING.acquire(blocking=False):
        raise UserError(
            "rlinf.fit already trains in another thread of this process, and the two would change each other's random "
            "numbers: start each run in a process of its own, for example by `rlinf train`, or one after the other"
        )
    try:
        with raising_exits():
            return _kept(run(config, report=report, callbacks=callbacks))
    finally:
        _TRAINING.release()


def _kept(result: RunResult) -> RunResult:
    """Return the result with a run directory that stays right when a notebook changes its folder."""
    return replace(result, run_dir=result.run_dir.absolute())


def evaluate(target: str | Path | RunResult, *overrides: str, step: int | None = None) -> RunResult:
    """Evaluate a run's newest checkpoint again, or that of ``step``, with other settings if given.

    The result, with its settings, is saved in the run's ``evaluations/``.
    """
    from rlinf.train.run import RunResult, evaluate_run

    folder = target.run_dir if isinstance(target, RunResult) else target
    return _kept(evaluate_run(str(folder), overrides, step=step))
