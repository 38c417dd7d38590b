"""A sweep's trials put together: settings over seeds, their ranking, and how sure one can be of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rlinf.report.axes import axes
from rlinf.report.runs import ReportError, read_series
from rlinf.sweep.importance import Importance, importances
from rlinf.sweep.records import SweepRecord, TrialRecord
from rlinf.sweep.statistics import Estimate, estimate, holm, welch

ALPHA = 0.05
Columns = dict[str, list[float | None]]


@dataclass(frozen=True)
class TrialResult:
    """A trial with its numbers."""

    record: TrialRecord
    final: float | None
    best: float | None
    steps: int
    minutes: float | None
    series: Columns


@dataclass
class SettingResult:
    """A setting over its seeds. Only trials that came to their end count."""

    setting: Mapping[str, Any]
    trials: list[TrialResult]
    rank: int = 0
    p_value: float | None = None
    """That it is as good as the best one (Welch, corrected by Holm); None for the best and without two seeds each."""
    final: Estimate | None = field(init=False)
    best: Estimate | None = field(init=False)

    def __post_init__(self) -> None:
        counted = self.counted
        self.final = estimate([trial.final for trial in counted if trial.final is not None])
        self.best = estimate([trial.best for trial in counted if trial.best is not None])

    @property
    def counted(self) -> list[TrialResult]:
        return [trial for trial in self.trials if trial.record.status == "finished" and trial.final is not None]

    @property
    def finals(self) -> list[float]:
        return [trial.final for trial in self.counted if trial.final is not None]

    @property
    def label(self) -> str:
        return setting_label(self.setting)


@dataclass(frozen=True)
class SweepSummary:
    """``settings`` by rank, those without a finished trial last; ``verdict``: which is best, and how sure that is."""

    sweep: SweepRecord
    settings: Sequence[SettingResult]
    importance: Sequence[Importance]
    verdict: str

    @property
    def trials(self) -> list[TrialResult]:
        return sorted((t for one in self.settings for t in one.trials), key=lambda trial: trial.record.number)


def setting_label(setting: Mapping[str, Any]) -> str:
    """
    >>> setting_label({"algorithm.group_size": 8, "learner.optimizer.lr": 0.001})
    'group_size=8, lr=0.001'
    """
    told = [f"{key.rpartition('.')[2]}={value:.4g}" if isinstance(value, float) else
            f"{key.rpartition('.')[2]}={value}" for key, value in setting.items()]  # fmt: skip
    return ", ".join(told) or "base"


def summarise(sweep: SweepRecord) -> SweepSummary:
    """Reads every trial's metrics."""
    by_setting: dict[str, list[TrialResult]] = {}
    for record in sweep.trials:
        by_setting.setdefault(repr(sorted(record.setting.items())), []).append(_result(sweep, record))
    settings = [SettingResult(trials[0].record.setting, trials) for trials in by_setting.values()]
    sign = -1 if sweep.mode == "max" else 1
    settings.sort(key=lambda one: (one.final is None, sign * one.final.mean if one.final else 0.0))
    for rank, one in enumerate(settings, start=1):
        one.rank = rank
    _compare(settings)
    counted = [trial for one in settings for trial in one.counted]
    return SweepSummary(
        sweep,
        settings,
        importances(sweep.keys, [t.record.setting for t in counted], [t.final for t in counted if t.final is not None]),
        _verdict(sweep, settings),
    )


def _result(sweep: SweepRecord, record: TrialRecord) -> TrialResult:
    try:
        series: Columns = read_series(record.run_dir / "metrics.jsonl")
    except ReportError:
        series = {"step": []}
    series |= axes(series)
    values = [value for value in series.get(sweep.metric, []) if value is not None]
    minutes = series.get("axis/minutes")
    return TrialResult(
        record=record,
        final=values[-1] if values else None,
        best=(max if sweep.mode == "max" else min)(values) if values else None,
        steps=int(series["step"][-1] or 0) if series["step"] else 0,
        minutes=minutes[-1] if minutes else None,
        series=series,
    )


def _compare(settings: Sequence[SettingResult]) -> None:
    """Every setting with the best one."""
    compared = []
    for one in settings[1:]:
        p_value = welch(settings[0].finals, one.finals)
        if p_value is not None:
            compared.append((one, p_value))
    for (one, _), corrected in zip(compared, holm([p for _, p in compared]), strict=True):
        one.p_value = corrected


def _verdict(sweep: SweepRecord, settings: Sequence[SettingResult]) -> str:
    ranked = [one for one in settings if one.final is not None]
    if not ranked:
        return "No trial has finished yet: nothing can be said."
    best = ranked[0]
    assert best.final is not None
    low, high = best.final.mean_interval
    seeds = f"{best.final.count} seed{'s' if best.final.count > 1 else ''}"
    told = f"Best: {best.label}, {sweep.metric} {best.final.mean:.4g} (95% interval {low:.4g} to {high:.4g}, {seeds})."
    if len(ranked) == 1:
        return told
    second = ranked[1]
    assert second.final is not None
    told += f"\nNext: {second.label}, {second.final.mean:.4g}."
    compared = [one for one in ranked[1:] if one.p_value is not None]
    if not compared:
        return f"{told} With one seed a setting, noise can not be told from a difference: run more seeds."
    close = [one for one in compared if one.p_value is not None and one.p_value > ALPHA]
    if not close:
        return f"{told} Yes, you can be sure: the best differs from every other by more than noise (p < {ALPHA})."
    if second in close:
        told += f" The difference is not distinguishable from noise (p = {second.p_value:.2g})"
    else:
        told += f" The difference is distinguishable from noise (p = {second.p_value:.2g})"
    listed = "; ".join(one.label for one in close[:5]) + (" and others" if len(close) > 5 else "")
    told += f"; {len(close)} of {len(compared)} other settings could be as good: {listed}."
    return f"{told} More seeds would tell."
