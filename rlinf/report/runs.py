"""The contents of a run directory, as plain data."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from rlinf.base.errors import UserError
from rlinf.base.json_files import read_json_file, read_json_lines
from rlinf.base.run_folders import no_run
from rlinf.base.yaml_text import read_yaml
from rlinf.config.record import masked
from rlinf.train.evaluation.saved import FOLDER, SavedEvaluation, read_evaluation

Series = Mapping[str, list[float | None]]


class ReportError(UserError):
    """A folder that no report can be made of; the message gives the reason."""


@dataclass(frozen=True)
class RunRecord:
    """One run: its numbers by step, its samples by step, and its origin."""

    path: Path
    name: str
    config: Mapping[str, Any]
    machine: Mapping[str, Any]
    series: Series
    """Metric -> one value a logged step (None where the step has none); "step" is one of them."""
    samples: Mapping[int, list[dict[str, Any]]] = field(default_factory=dict)
    """Rows of training batches."""
    episodes: Mapping[int, list[dict[str, Any]]] = field(default_factory=dict)
    """Episodes of evaluations."""
    evaluations: Sequence[SavedEvaluation] = ()
    """Those of `rlinf eval`."""
    summary: Mapping[str, Any] | None = None
    notes: Sequence[str] = ()
    """What could not be read."""

    @property
    def steps(self) -> list[int]:
        return [int(step or 0) for step in self.series.get("step", [])]

    def values(self, name: str) -> list[float]:
        """Return the numbers of a metric, if there are any, in the order of the steps."""
        return [value for value in self.series.get(name, []) if value is not None]

    def setting(self, dotted: str) -> Any:
        """Read a key of the resolved configuration; None if it is not there."""
        value: Any = self.config
        for name in dotted.split("."):
            value = value.get(name) if isinstance(value, Mapping) else None
        return value


_NO_RUN = ("sweep.json", "trial.json")
"""Files of a sweep and of a trial, whose run is in a folder below it: they have a config.yaml too."""


def is_run(path: Path) -> bool:
    """Whether a folder is a run directory; false for one that may not be read."""
    try:
        return (path / "config.yaml").exists() and not any((path / name).exists() for name in _NO_RUN)
    except OSError:
        return False


def leads_out(path: Path, run: Path) -> bool:
    """Whether a file is, or lies behind, a link out of a run directory: it may be anything that its reader can read."""
    return path.exists() and not path.resolve().is_relative_to(run.resolve())


def require_inside(path: Path, run: Path) -> Path:
    """Return ``path``. Raises :class:`ReportError` if it leads out of ``run``."""
    if leads_out(path, run):
        raise ReportError(
            f"{path} is a link out of the run directory, which is not followed: put the file itself there"
        )
    return path


def read_run(path: Path) -> RunRecord:
    """Read a run, finished or not. Raises :class:`ReportError` if the folder is none."""
    if not is_run(path):
        raise ReportError(no_run(path))
    config = _config(require_inside(path / "config.yaml", path))
    series, note = read_series(require_inside(path / "metrics.jsonl", path))
    notes = [note]
    # A trial's run is named after its trial: all of a sweep have the same `run.name`.
    return RunRecord(
        path=path,
        name=path.parent.name
        if (path.parent / "trial.json").exists()
        else str((config.get("run") or {}).get("name") or path.name),
        config=config,
        machine=read_json_file(require_inside(path / "machine.json", path)) or {},
        series=series,
        samples=_rows_by_step(path / "samples", ("group", "reward"), notes),
        episodes=_rows_by_step(path / "episodes", ("total", "trace"), notes),
        evaluations=_evaluations(path, notes),
        summary=read_json_file(require_inside(path / "summary.json", path)),
        notes=[note for note in notes if note],
    )


def _evaluations(path: Path, notes: list[str]) -> list[SavedEvaluation]:
    """In the order of their files; what is damaged is noted."""
    results = []
    for file in sorted((path / FOLDER).glob("*.json")):
        try:
            results.append(read_evaluation(require_inside(file, path)))
        except UserError as error:
            notes.append(str(error))
    return results


def read_series(path: Path) -> tuple[dict[str, list[float | None]], str]:
    """Read `metrics.jsonl` as columns, in which what is not finite is None; with the skipped damaged lines, in words.

    Raises :class:`ReportError` if the file is not there.
    """
    if not path.exists():
        raise ReportError(f"{path.parent} has no metrics.jsonl: the run has not finished its first step")
    lines = read_json_lines(path, number="step")
    series: dict[str, list[float | None]] = {"step": []}
    for count, numbers in enumerate(lines.rows):
        for name, value in numbers.items():
            series.setdefault(name, [None] * count).append(
                value if (isinstance(value, int | float) and abs(value) <= sys.float_info.max) else None
            )
        for column in series.values():
            if len(column) == count:
                column.append(None)
    return series, lines.note(path)


def _rows_by_step(folder: Path, needed: Sequence[str], notes: list[str]) -> dict[int, list[dict[str, Any]]]:
    """Step -> the rows that have the ``needed`` keys; files without any are left out, and damage is noted."""
    results = {}
    for path in sorted(folder.glob("step_*.jsonl")):
        step = path.stem.removeprefix("step_")
        if leads_out(path, folder.parent):
            notes.append(f"{path} is a link out of the run directory, and was left out")
            continue
        lines = read_json_lines(path)
        notes.append(lines.note(path))
        rows = [row for row in lines.rows if all(name in row for name in needed)]
        if step.isdecimal() and rows:
            results[int(step)] = rows
    return results


def _config(path: Path) -> dict[str, Any]:
    """Read the run's own copy of its configuration; the values of `cluster.env` stay out, whatever wrote it."""
    try:
        content = read_yaml(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        why = str(error).splitlines()[0]
        raise ReportError(f"{path}, the run's own copy of its configuration, is damaged: {why}") from error
    if not isinstance(content, dict) or not isinstance(content.get("run"), dict):
        raise ReportError(f"{path}, the run's own copy of its configuration, is damaged: it holds no sections")
    return masked(content)
