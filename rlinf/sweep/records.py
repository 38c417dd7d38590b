"""The contents of a sweep directory: `sweep.json`, and `trials/*/` with `trial.json` and a run directory each."""

from __future__ import annotations

import copy
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rlinf.base.durable import write_atomically
from rlinf.base.errors import UserError
from rlinf.base.json_files import read_json_file
from rlinf.config import ConfigErrors, ConfigProblem, load
from rlinf.config.problems import COMMAND_LINE
from rlinf.config.record import MASK
from rlinf.config.record import stored as stored_config
from rlinf.sweep.load import Sweep, assignments
from rlinf.sweep.schema import SweepConfig
from rlinf.train.read_files import data_digests
from rlinf.train.run_dir import MAY_CHANGE

# What may differ when a sweep goes on: how long, how wide, where, and how often something is tried.
_MAY_CHANGE = ("dir", "resources", "retries", "address", "budget", "confirm")
_OF_SWEEP = ("run.name", "run.seed")
"""Keys of the base that have no effect in a sweep."""


@dataclass
class TrialRecord:
    """`trial.json`. ``status``: running, finished, failed, stopped (scheduler), out of time, interrupted (a signal).

    Out of time is by `wall_time_s`. A trial that was cut by a kill of the driver still has the status running. All but
    finished and stopped ones go on the next time.
    """

    number: int
    setting: dict[str, Any]
    seed: int
    status: str = "running"
    failures: int = 0
    error: str | None = None
    """The traceback of the newest failure."""
    lineage: list[dict[str, Any]] = field(default_factory=list)
    """Whose checkpoints it took over (population-based training): ``{step, from, setting}`` each."""
    cpu_s: float = 0.0
    """CPU-seconds of its process and of that process's children, start and evaluations included, over all attempts
    that ended by themselves. Workers of a Ray cluster are no children."""
    folder: Path = field(default=Path())

    @property
    def run_dir(self) -> Path:
        return self.folder / "run"

    def write(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        content = {name: value for name, value in asdict(self).items() if name != "folder"}
        write_atomically(self.folder / "trial.json", json.dumps(content, indent=1))

    @classmethod
    def read(cls, folder: Path) -> TrialRecord:
        return cls(**(read_json_file(folder / "trial.json") or {}), folder=folder)

    def steps_done(self) -> int | None:
        """Return the steps of a run that finished; None for others."""
        summary = read_json_file(self.run_dir / "summary.json")
        return None if summary is None else int(summary["steps"])


@dataclass(frozen=True)
class SweepRecord:
    """`sweep.json` and the trials in the same folder."""

    folder: Path
    name: str
    metric: str
    mode: str
    keys: Sequence[str]
    definition: Mapping[str, Any]
    trials: Sequence[TrialRecord]


def read_sweep(folder: Path) -> SweepRecord:
    """Read a sweep directory, finished or not."""
    stored = read_json_file(folder / "sweep.json") or {}
    trials = [TrialRecord.read(path.parent) for path in sorted(folder.glob("trials/*/trial.json"))]
    return SweepRecord(
        folder=folder,
        name=stored["name"],
        metric=stored["metric"],
        mode=stored["mode"],
        keys=stored["keys"],
        definition=stored["definition"],
        trials=sorted(trials, key=lambda trial: trial.number),
    )


def mark_cut_short(folders: Sequence[Path], status: str = "interrupted") -> None:
    """Give ``status`` to the trials of these sweeps that were still running."""
    for path in (path for folder in folders for path in folder.glob("trials/*/trial.json")):
        trial = TrialRecord.read(path.parent)
        if trial.status == "running":
            trial.status = status
            trial.write()


def _shown_definition(config: SweepConfig) -> dict[str, Any]:
    """Return the sweep as `sweep.json` shows it: everything but the values of `cluster.env`."""
    definition: dict[str, Any] = json.loads(json.dumps(asdict(config)))
    for key, value in definition["set"].items():
        if f"{key}.".startswith("cluster.env."):
            definition["set"][key] = dict.fromkeys(value, MASK) if isinstance(value, dict) else MASK
    return definition


def _shown_base(sweep: Sweep) -> dict[str, Any]:
    """Return the settings and the digests of the rows that all trials begin with; none if the base needs the space."""
    try:
        config = load(sweep.base, assignments(sweep.config.set))
    except ConfigErrors:
        return {}
    sections: dict[str, Any] = json.loads(json.dumps(stored_config(config), default=str))
    return {"settings": sections, "rows": data_digests(config)}


def _changed_base(before: Mapping[str, Any], now: Mapping[str, Any], varied: Collection[str]) -> list[str]:
    """Name the keys of the base that differ, and the data whose rows differ, without those that the sweep sets.

    ``varied``: keys that every trial has from the space.
    """
    settings, current = (_without(one.get("settings", {}), varied) for one in (before, now))
    rows, digests = before.get("rows", {}), now.get("rows", {})
    keys = [
        f"{section}.{key}"
        for section, values in current.items()
        for key, value in (values.items() if isinstance(values, dict) else ())
        if isinstance(settings.get(section), dict) and settings[section].get(key, value) != value
    ]
    changed = [key for key in keys if not key.startswith((*MAY_CHANGE, *_OF_SWEEP))]
    return [f"base: {key}" for key in changed] + [
        f"base: rows of {key}"
        for key, digest in digests.items()
        if key not in varied and rows.get(key, digest) != digest
    ]


def _without(settings: Mapping[str, Any], keys: Collection[str]) -> dict[str, Any]:
    """Return a copy of nested settings without ``keys``, names with dots."""
    result = copy.deepcopy(dict(settings))
    for key in keys:
        *sections, last = key.split(".")
        inner: Any = result
        for name in sections:
            inner = inner.get(name) if isinstance(inner, dict) else None
        if isinstance(inner, dict):
            inner.pop(last, None)
    return result


def _order(space: Mapping[str, Any]) -> list[tuple[str, list[str]]]:
    """List the entries of a space in their order, each with its variants in theirs."""
    return [(names, list(entry.get("variants") or {})) for names, entry in space.items()]


def open_sweep(sweep: Sweep) -> None:
    """Make the directory, or check that it holds this very sweep; raise ConfigErrors otherwise."""
    path = sweep.folder / "sweep.json"
    definition, base = _shown_definition(sweep.config), _shown_base(sweep)
    if path.exists():
        stored = json.loads(path.read_text())
        before = stored["definition"]
        names = [name for name in definition if name not in _MAY_CHANGE and before.get(name) != definition[name]]
        if "space" not in names and _order(before["space"]) != _order(definition["space"]):
            names.append("the order of space, by which trials are numbered,")
        # Early stopping fixes its trials at the beginning; a searcher can suggest more.
        fixed = ("steps",) if sweep.config.schedule.name == "none" else ("steps", "trials")
        names += [f"budget.{name}" for name in fixed if before["budget"][name] != definition["budget"][name]]
        names += _changed_base(stored.get("base") or {}, base, sweep.always_varied)
        if names:
            message = f"{sweep.folder} holds another sweep: {', '.join(names)} changed."
            key = "run.dir" if str(sweep.file) == COMMAND_LINE else "dir"
            fix = f"Choose another {key}, or take the changes back to go on with that sweep."
            raise ConfigErrors([ConfigProblem(str(sweep.file), None, key, message, fix)])
    try:
        sweep.folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"dir: {sweep.folder} cannot be made ({error.strerror}): choose another dir") from error
    content = {
        "name": sweep.name,
        "metric": sweep.config.metric,
        "mode": sweep.config.mode,
        "keys": sweep.keys,
        "definition": definition,
        "base": base,
    }
    write_atomically(path, json.dumps(content, indent=1))
