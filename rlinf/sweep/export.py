"""A sweep's results as CSV, Parquet and Markdown."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlinf.sweep.curves import AXES, curve
from rlinf.sweep.records import SweepRecord
from rlinf.sweep.statistics import Estimate
from rlinf.sweep.summary import SettingResult, SweepSummary, TrialResult

Record = Mapping[str, Any]


def write_tables(summary: SweepSummary, folder: Path) -> None:
    """Write `settings` (over seeds), `trials` (runs), `curves` (over seeds, by step): CSV, Parquet; settings.md."""
    settings = [setting_row(summary.sweep.keys, one) for one in summary.settings]
    trials = [trial_row(summary.sweep.keys, one) for one in summary.trials]
    curves = [row for one in summary.settings for row in _curve_rows(summary.sweep, one)]
    for name, rows in (("settings", settings), ("trials", trials), ("curves", curves)):
        if rows:
            path = folder / f"{name}.csv"
            with path.open("w", newline="", encoding="utf-8") as file:
                writer = csv.DictWriter(file, fieldnames=list(rows[0]))
                writer.writeheader()
                writer.writerows(rows)
            _parquet(folder / f"{name}.parquet", rows)
    (folder / "settings.md").write_text(_markdown(summary), encoding="utf-8")


def setting_row(keys: Sequence[str], one: SettingResult) -> dict[str, Any]:
    """Return a setting as one flat row."""
    return {
        "rank": one.rank,
        **{key: one.setting.get(key) for key in keys},
        **_columns("final", one.final),
        **_columns("best", one.best),
        "p_as_good_as_best": one.p_value,
        "best_beats_it": one.beaten.probability if one.beaten else None,
        "best_beats_it_low": one.beaten.interval[0] if one.beaten else None,
        "best_beats_it_high": one.beaten.interval[1] if one.beaten else None,
        "failed": sum(trial.record.status == "failed" for trial in one.trials),
    }


def trial_row(keys: Sequence[str], trial: TrialResult) -> dict[str, Any]:
    """Return a trial as one flat row."""
    return {
        "number": trial.record.number,
        **{key: trial.record.setting.get(key) for key in keys},
        "seed": trial.record.seed,
        "status": trial.record.status,
        "final": trial.final,
        "best": trial.best,
        "steps": trial.steps,
        "minutes": trial.minutes,
        "failures": trial.record.failures,
        "lineage": "; ".join(f"step {one['step']} of {one['from']}" for one in trial.record.lineage) or None,
        "folder": trial.record.folder.name,
    }


def _curve_rows(sweep: SweepRecord, one: SettingResult) -> list[dict[str, Any]]:
    """Return a setting's learning curve, a flat row for each step; none if no trial finished."""
    result = curve(one.counted, sweep.metric)
    if result is None:
        return []
    setting = {"rank": one.rank, **{key: one.setting.get(key) for key in sweep.keys}, "seeds": result.seeds}
    columns = {
        # Every row has every axis, whether or not these runs have numbers for it.
        **{axis.removeprefix("axis/"): result.axes.get(axis, [None] * len(result.mean)) for axis in AXES},
        "mean": result.mean,
        "mean_low": result.low,
        "mean_high": result.high,
        "median": result.median,
        "iqm": result.iqm,
    }
    return [{**setting, **dict(zip(columns, row, strict=True))} for row in zip(*columns.values(), strict=True)]


def _columns(name: str, result: Estimate | None) -> dict[str, Any]:
    numbers: dict[str, Any] = {"seeds": 0, "mean": None, "mean_low": None, "mean_high": None, "median": None}
    numbers |= {"iqm": None, "iqm_low": None, "iqm_high": None}
    if result is not None:
        numbers = {
            "seeds": result.count,
            "mean": result.mean,
            "mean_low": result.mean_interval[0],
            "mean_high": result.mean_interval[1],
            "median": result.median,
            "iqm": result.iqm,
            "iqm_low": result.iqm_interval[0],
            "iqm_high": result.iqm_interval[1],
        }
    return {f"{name}_{key}": value for key, value in numbers.items()}


def _parquet(path: Path, rows: Sequence[Record]) -> None:
    import pyarrow
    import pyarrow.parquet

    # A column has one type: values of several kinds (a number or a word) are written as text.
    columns: dict[str, list[Any]] = {}
    for name in rows[0]:
        column = [row[name] for row in rows]
        kinds = {type(value) for value in column if value is not None}
        mixed = len(kinds) > 1 and kinds != {int, float}
        columns[name] = [None if value is None else str(value) for value in column] if mixed else column
    pyarrow.parquet.write_table(pyarrow.table(columns), path)


def _markdown(summary: SweepSummary) -> str:
    lines = [f"# {summary.sweep.name}", "", summary.verdict.replace("\n", "\n\n"), ""]
    lines += [
        "| rank | setting | seeds | mean [95%] | median | IQM [95%] | best | P(first beats it) | p |",
        "|--:|---|--:|---|--:|---|--:|--:|--:|",
    ]
    for one in summary.settings:
        if one.final is None or one.best is None:
            lines.append(f"| {one.rank} | {one.label} | 0 | - | - | - | - | - | - |")
            continue
        result = one.final
        mean = f"{result.mean:.4g} [{result.mean_interval[0]:.4g}, {result.mean_interval[1]:.4g}]"
        middle = f"{result.iqm:.4g} [{result.iqm_interval[0]:.4g}, {result.iqm_interval[1]:.4g}]"
        beats = "-" if one.beaten is None else f"{one.beaten.probability:.2g}"
        p_value = "-" if one.p_value is None else f"{one.p_value:.2g}"
        lines.append(
            f"| {one.rank} | {one.label} | {result.count} | {mean} | {result.median:.4g} | {middle} "
            f"| {one.best.mean:.4g} | {beats} | {p_value} |"
        )
    return "\n".join(lines) + "\n"
