"""What a run directory says, as plain data."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from rlinf.config.stored import masked
from rlinf.durable import metric_lines
from rlinf.errors import UserError

Series = Mapping[str, list[float | None]]


class ReportError(UserError):
    """A folder that no report can be made of; the message says why."""


@dataclass(frozen=True)
class RunRecord:
    """One run: its numbers by step, its samples by step, and where it came from."""

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
    summary: Mapping[str, Any] | None = None

    @property
    def steps(self) -> list[int]:
        return [int(step or 0) for step in self.series.get("step", [])]

    def values(self, name: str) -> list[float]:
        """The numbers of a metric, where there are any, in the order of the steps."""
        return [value for value in self.series.get(name, []) if value is not None]

    def setting(self, dotted: str) -> Any:
        """A key of the resolved configuration; None where it is not there."""
        value: Any = self.config
        for name in dotted.split("."):
            value = value.get(name) if isinstance(value, Mapping) else None
        return value


def is_run(path: Path) -> bool:
    return (path / "config.yaml").exists() and not (path / "sweep.json").exists()


def read_run(path: Path) -> RunRecord:
    """A run, finished or not. Raises :class:`ReportError` where the folder is none."""
    if not is_run(path):
        raise ReportError(f"{path} is no run directory: it has no config.yaml")
    config = _config(path / "config.yaml")
    return RunRecord(
        path=path,
        name=str((config.get("run") or {}).get("name") or path.name),
        config=config,
        machine=_json(path / "machine.json") or {},
        series=read_series(path / "metrics.jsonl"),
        samples=_rows_by_step(path / "samples"),
        episodes=_rows_by_step(path / "episodes"),
        summary=_json(path / "summary.json"),
    )


def read_series(path: Path) -> dict[str, list[float | None]]:
    """`metrics.jsonl` as columns. A line cut short by a kill is passed over; what is not finite is None.

    Raises :class:`ReportError` where the file is not there.
    """
    if not path.is_file():
        raise ReportError(f"{path.parent} has no metrics.jsonl: the run has not finished its first step")
    series: dict[str, list[float | None]] = {"step": []}
    count = 0
    with path.open(encoding="utf-8", errors="replace") as lines:
        for numbers in itertools.chain.from_iterable(map(metric_lines, lines)):
            for name, value in numbers.items():
                column = series.setdefault(name, [None] * count)
                column.append(value if isinstance(value, int | float) and math.isfinite(value) else None)
            count += 1
            for column in series.values():
                if len(column) < count:
                    column.append(None)
    return series


def _rows_by_step(folder: Path) -> dict[int, list[dict[str, Any]]]:
    """The rows that can be read; damaged lines and files of other names are passed over."""
    found = {}
    for path in sorted(folder.glob("step_*.jsonl")):
        step = path.stem.removeprefix("step_")
        if step.isdecimal() and path.is_file():
            text = path.read_text(encoding="utf-8", errors="replace")
            found[int(step)] = [row for line in text.splitlines() if (row := _mapping(line)) is not None]
    return found


def _mapping(line: str) -> dict[str, Any] | None:
    try:
        row = json.loads(line)
    except ValueError:
        return None
    return row if isinstance(row, dict) else None


def _config(path: Path) -> dict[str, Any]:
    """The run's own copy of its configuration; the values of `cluster.env` stay out, whoever wrote it."""
    try:
        content = yaml.safe_load(path.read_bytes())
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise ReportError(f"{path}, the run's own copy of its configuration, is damaged: {error}") from error
    if not isinstance(content, dict) or not isinstance(content.get("run"), dict):
        raise ReportError(f"{path}, the run's own copy of its configuration, is damaged: it holds no sections")
    return masked(content)


def _json(path: Path) -> dict[str, Any] | None:
    """A mapping in a file, where there is one. Raises :class:`ReportError` where it holds none."""
    if not path.exists():
        return None
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise ReportError(f"{path} is damaged ({error}): remove it, and give the command again") from error
    if not isinstance(content, dict):
        raise ReportError(f"{path} is damaged: remove it, and give the command again")
    return content
