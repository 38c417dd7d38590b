"""What a run directory says, as plain data."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

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
    config = yaml.safe_load((path / "config.yaml").read_text()) or {}
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
    if not path.exists():
        raise ReportError(f"{path.parent} has no metrics.jsonl: the run has not finished its first step")
    series: dict[str, list[float | None]] = {"step": []}
    count = 0
    with path.open() as lines:
        for line in lines:
            try:
                numbers = json.loads(line)
            except ValueError:
                continue
            for name, value in numbers.items():
                column = series.setdefault(name, [None] * count)
                column.append(value if isinstance(value, int | float) and math.isfinite(value) else None)
            count += 1
            for column in series.values():
                if len(column) < count:
                    column.append(None)
    return series


def _rows_by_step(folder: Path) -> dict[int, list[dict[str, Any]]]:
    found = {}
    for path in sorted(folder.glob("step_*.jsonl")):
        lines = [line for line in path.read_text().splitlines() if line.strip()]
        found[int(path.stem.removeprefix("step_"))] = [json.loads(line) for line in lines]
    return found


def _json(path: Path) -> dict[str, Any] | None:
    return json.loads(path.read_text()) if path.exists() else None
