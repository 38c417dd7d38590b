"""The contents of the page about a sweep, as data for its scripts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from rlinf.sweep.confirmation import confirmation_sentence
from rlinf.sweep.curves import curve
from rlinf.sweep.export import setting_row, trial_row
from rlinf.sweep.load import short_names
from rlinf.sweep.records import read_sweep
from rlinf.sweep.summary import SettingResult, SweepSummary, summarise

# The number of best settings whose curves are drawn: more would overlap.
CURVES = 10
_POINTS = 200
_CURVE_METRICS = ("reward/mean", "rollout/accuracy", "rollout/return", "rollout/response_length", "train/entropy")


def sweep_payload(folder: Path) -> dict[str, Any]:
    """``kind: sweep``: ranking, curves with intervals, importance, every trial, and what failed."""
    summary = summarise(read_sweep(folder))
    sweep = summary.sweep
    # List the sweep file's keys that are set, with their values as YAML.
    definition = {key: _set(value) for key, value in sweep.definition.items() if _is_set(value)}
    failed = [trial.record for trial in summary.trials if trial.record.error]
    return {
        "kind": "sweep",
        "name": sweep.name,
        "metric": sweep.metric,
        "mode": sweep.mode,
        "keys": list(sweep.keys),
        "short_names": short_names(sweep.keys),
        "verdict": [*summary.verdict.splitlines(), *filter(None, [confirmation_sentence(folder, summary)])],
        "sure": summary.sure,
        "settings": [
            {**setting_row(sweep.keys, one), "label": one.label, "finals": one.finals} for one in summary.settings
        ],
        "trials": [trial_row(sweep.keys, trial) for trial in summary.trials],
        "errors": [
            {"trial": record.folder.name, "status": record.status, "error": record.error or ""} for record in failed
        ],
        "notes": summary.notes,
        "importance": [
            {"key": one.key, "share": one.share, "noise": one.noise, "matters": one.matters}
            for one in summary.importance
        ],
        "curves": _curves(summary),
        "definition": [
            {
                "key": key,
                "value": yaml.safe_dump(value, default_flow_style=True, width=1000).removesuffix("...\n").strip(),
            }
            for key, value in definition.items()
        ],
    }


def _set(value: Any) -> Any:
    """``value`` without the keys in it that are left at nothing."""
    if isinstance(value, Mapping):
        return {key: _set(child) for key, child in value.items() if _is_set(child)}
    return value


def _is_set(value: Any) -> bool:
    return value not in (None, "", {}, [])


def _curves(summary: SweepSummary) -> list[dict[str, Any]]:
    """For each metric, a curve a setting: mean and 95% interval over the seeds at steps that all of them have."""
    shown = [one for one in summary.settings if one.counted][:CURVES]
    results = []
    for metric in dict.fromkeys((summary.sweep.metric, *_CURVE_METRICS)):
        lines = [line for one in shown if (line := _line(one, metric)) is not None]
        if lines:
            results.append({"metric": metric, "lines": lines})
    return results


def _line(one: SettingResult, metric: str) -> dict[str, Any] | None:
    result = curve(one.counted, metric, points=_POINTS)
    if result is None:
        return None
    return {"label": one.label, "y": result.mean, "low": result.low, "high": result.high, **result.axes}
