"""A sweep's trials put together: settings over seeds, their ranking, and how sure one can be of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlinf.report.axes import axes
from rlinf.report.runs import ReportError, read_series
from rlinf.sweep.load import short_names
from rlinf.sweep.power import MOST, POWER, seeds_needed
from rlinf.sweep.records import SweepRecord, TrialRecord
from rlinf.sweep.sequential import Judgement, judge
from rlinf.sweep.statistics import Estimate, ImprovementChance, estimate, holm, improvement, welch

# Which parameters matter: the share of the result's variance that a parameter explains alone.
# The share is the correlation ratio: the variance of the means of the parameter's values (or of eight ranges of equal
# count, where it is a number with many values) over the whole variance. Any grouping explains something by chance, so
# the parameter is permuted 200 times; the mean of that is taken off, and its 95th percentile is the noise. Seeds of one
# setting stay together: they are no independent draws of its parameters.
_BINS, _PERMUTATIONS = 8, 200


@dataclass(frozen=True)
class Importance:
    """``share`` of the variance (chance taken off), the ``raw`` one, and what chance reaches in 5% of cases."""

    key: str
    share: float
    raw: float
    noise: float

    @property
    def matters(self) -> bool:
        return self.raw > self.noise


def importances(
    keys: Sequence[str], settings: Sequence[Mapping[str, Any]], results: Sequence[float]
) -> list[Importance]:
    """Compute the importance of every key that varies, the most important first; none for fewer than four results."""
    computed: list[Importance] = []
    values = np.asarray(results, dtype=np.float64)
    if len(values) < 4 or values.var() == 0:
        return computed
    whole = _numbers([repr(sorted(setting.items())) for setting in settings])
    for key in keys:
        groups = _groups([setting.get(key) for setting in settings])
        if groups.max(initial=0) == 0:
            continue
        others = _numbers([repr(sorted({**setting, key: None}.items())) for setting in settings])
        raw = float(_explained(groups[None], values)[0])
        chance = _explained(_permuted(groups, whole, others), values)
        mean = float(chance.mean())
        share = max(0.0, (raw - mean) / (1 - mean)) if mean < 1 else 0.0
        computed.append(Importance(key, share, raw, float(np.percentile(chance, 95))))
    return sorted(computed, key=lambda one: -one.share)


def _groups(values: Sequence[Any]) -> NDArray[np.int64]:
    """Return a group number for each value."""
    marks = [repr(value) for value in values]
    numeric = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    if numeric and len(set(marks)) > _BINS:
        column = np.asarray(values, dtype=np.float64)
        edges = np.quantile(column, np.linspace(0, 1, _BINS + 1)[1:-1])
        return np.searchsorted(edges, column, side="right")
    return _numbers(marks)


def _numbers(marks: Sequence[str]) -> NDArray[np.int64]:
    """Return a number from 0 on for each mark, the same for equal ones."""
    return np.unique(marks, return_inverse=True)[1]


def _permuted(groups: NDArray[np.int64], whole: NDArray[np.int64], others: NDArray[np.int64]) -> NDArray[np.int64]:
    """Permute the groups [N] of a parameter that does nothing, [R, N].

    Trials that agree in all ``others`` are then draws of one distribution, whatever their group. If no two settings
    agree so (random search), the groups of ``whole`` settings are permuted, each with all its trials.
    """
    generator = np.random.default_rng(0)
    if others.max() == whole.max():
        of_setting = groups[np.unique(whole, return_index=True)[1]]
        return np.stack([generator.permutation(of_setting)[whole] for _ in range(_PERMUTATIONS)])
    in_order = np.argsort(others, kind="stable")
    permuted = np.empty((_PERMUTATIONS, len(groups)), dtype=np.int64)
    for row in permuted:
        row[in_order] = groups[np.lexsort((generator.random(len(groups)), others))]
    return permuted


def _explained(groups: NDArray[np.int64], results: NDArray[np.float64]) -> NDArray[np.float64]:
    """Compute the correlation ratio of results [N] for each row of groups [R, N]."""
    member = np.eye(int(groups.max()) + 1)[groups]
    counts = member.sum(axis=1)
    centred = results - results.mean()
    means = np.einsum("n,rng->rg", centred, member) / np.maximum(counts, 1)
    ratio: NDArray[np.float64] = (means**2 * counts).sum(axis=1) / (centred**2).sum()
    return ratio


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
    note: str
    """The lines of its metrics that are damaged and left out, in words; empty where all are whole."""


@dataclass
class SettingResult:
    """A setting over its seeds. Only trials that finished count."""

    setting: Mapping[str, Any]
    trials: list[TrialResult]
    rank: int = 0
    p_value: float | None = None
    """That it is as good as the best one (Welch, corrected by Holm); None for the best and without two seeds each."""
    beaten: ImprovementChance | None = None
    """How probably a run of the best setting is better than one of this; None for the best itself."""
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
    def by_seed(self) -> dict[int, float]:
        return {trial.record.seed: trial.final for trial in self.counted if trial.final is not None}

    @property
    def label(self) -> str:
        return _setting_label(self.setting)


@dataclass(frozen=True)
class SweepSummary:
    """``settings`` by rank, those without a finished trial last; ``verdict``: which is best, and how sure that is."""

    sweep: SweepRecord
    settings: Sequence[SettingResult]
    importance: Sequence[Importance]
    verdict: str
    sure: bool | None
    """Whether the best differs from all others by more than noise; None where there is nothing to compare."""

    @property
    def trials(self) -> list[TrialResult]:
        return sorted((t for one in self.settings for t in one.trials), key=lambda trial: trial.record.number)

    @property
    def notes(self) -> list[str]:
        """Remarks on what was left out of the numbers."""
        return [trial.note for trial in self.trials if trial.note]


def _setting_label(setting: Mapping[str, Any]) -> str:
    """
    >>> _setting_label({"algorithm.group_size": 8, "learner.optimizer.lr": 0.001})
    'group_size=8, lr=0.001'
    """
    names = short_names(list(setting))
    text = [
        f"{names[key]}={value:.4g}" if isinstance(value, float) else f"{names[key]}={value}"
        for key, value in setting.items()
    ]
    return ", ".join(text) or "base"


def summarise(sweep: SweepRecord) -> SweepSummary:
    """Read every trial's metrics."""
    by_setting: dict[str, list[TrialResult]] = {}
    for record in sweep.trials:
        by_setting.setdefault(repr(sorted(record.setting.items())), []).append(_result(sweep, record))
    settings = [SettingResult(trials[0].record.setting, trials) for trials in by_setting.values()]
    sign = -1 if sweep.mode == "max" else 1
    settings.sort(key=lambda one: (one.final is None, sign * one.final.mean if one.final else 0.0))
    for rank, one in enumerate(settings, start=1):
        one.rank = rank
    _compare(settings, -sign)
    counted = [trial for one in settings for trial in one.counted]
    return SweepSummary(
        sweep,
        settings,
        importances(sweep.keys, [t.record.setting for t in counted], [t.final for t in counted if t.final is not None]),
        _verdict(sweep, settings),
        _is_sure(sweep, settings),
    )


def judge_sweep(sweep: SweepRecord) -> Judgement:
    """Judge the settings of a sweep with `stop: sequential` by the seeds that all of them have finished."""
    return _judged(sweep, summarise(sweep).settings)


def _judged(sweep: SweepRecord, settings: Sequence[SettingResult]) -> Judgement:
    sign = 1 if sweep.mode == "max" else -1
    return judge([one.by_seed for one in settings], sweep.definition["seeds"], sign=sign)


def _result(sweep: SweepRecord, record: TrialRecord) -> TrialResult:
    series: Columns = {"step": []}
    note = ""
    with suppress(ReportError):
        series, note = read_series(record.run_dir / "metrics.jsonl")
    series |= axes(series)
    values = [value for value in series.get(sweep.metric, []) if value is not None]
    minutes = series.get("axis/minutes")
    return TrialResult(
        record=record,
        final=values[-1] if values else None,
        best=(max if sweep.mode == "max" else min)(values) if values else None,
        steps=max(0, int(series["step"][-1] or 0)) if series["step"] else 0,
        minutes=minutes[-1] if minutes else None,
        series=series,
        note=note,
    )


def _compare(settings: Sequence[SettingResult], sign: int) -> None:
    """Compare every setting with the best one; ``sign`` is -1 if less is better."""
    compared = []
    signed = [{seed: sign * value for seed, value in one.by_seed.items()} for one in settings]
    for one, scores in zip(settings[1:], signed[1:], strict=True):
        one.beaten = improvement(signed[0], scores)
        p_value = welch(settings[0].finals, one.finals)
        if p_value is not None:
            compared.append((one, p_value))
    for (one, _), corrected in zip(compared, holm([p for _, p in compared]), strict=True):
        one.p_value = corrected


def _verdict(sweep: SweepRecord, settings: Sequence[SettingResult]) -> str:
    """Three lines: the best, whether one can be sure, and the next."""
    ranked = [one for one in settings if one.final is not None]
    if not ranked:
        return "No trial has finished yet: there is no result."
    best = ranked[0]
    assert best.final is not None
    low, high = best.final.mean_interval
    seeds = f"95% interval {low:.4g} to {high:.4g}, {best.final.count} seeds" if best.final.count > 1 else "1 seed"
    lines = [f"Best: {best.label}, {sweep.metric} {best.final.mean:.4g} ({seeds})."]
    if len(ranked) > 1 and sweep.definition.get("stop") == "sequential":
        lines += [_judged(sweep, settings).sentence(len(sweep.definition["seeds"])), _next(ranked[1])]
    elif len(ranked) > 1:
        lines += [f"Sure? {_sureness(ranked)}", _next(ranked[1])]
    left = [trial for one in settings for trial in one.trials if trial not in one.counted]
    if left:
        trials, verb = ("1 trial", "does") if len(left) == 1 else (f"{len(left)} trials", "do")
        lines.append(f"{trials} did not finish (stopped, failed, cut short) and {verb} not count.")
    return "\n".join(lines)


def _is_sure(sweep: SweepRecord, settings: Sequence[SettingResult]) -> bool | None:
    others = [one for one in settings[1:] if one.final is not None]
    if not others:
        return None
    if sweep.definition.get("stop") == "sequential":
        return _judged(sweep, settings).state == "decided"
    return all(one.p_value is not None and one.p_value <= ALPHA for one in others)


def _next(second: SettingResult) -> str:
    assert second.final is not None
    text = f"Next: {second.label}, {second.final.mean:.4g}."
    beaten = second.beaten
    if beaten is None:
        return text
    low, high = beaten.interval
    text += f" The best was better in {beaten.probability:.0%} of all pairs of runs (95% interval of that probability:"
    text += f" {low:.0%} to {high:.0%})"
    return f"{text}, on {beaten.wins} of {beaten.shared} shared seeds." if beaten.shared else f"{text}."


def _sureness(ranked: Sequence[SettingResult]) -> str:
    second, compared = ranked[1], [one for one in ranked[1:] if one.p_value is not None]
    if not compared:
        return "No: with one seed a setting, noise cannot be distinguished from a difference: run more seeds."
    close = [one for one in compared if one.p_value is not None and one.p_value > ALPHA]
    alone = len(ranked) - 1 - len(compared)
    if not close and alone:
        others = "1 other has" if alone == 1 else f"{alone} others have"
        return f"No: the best differs from what can be compared, but {others} one finished run: more seeds."
    if not close:
        return f"Yes, you can be sure: the best differs from every other by more than noise (p < {ALPHA})."
    listed = "; ".join(one.label for one in close[:5]) + (" and others" if len(close) > 5 else "")
    text = "No:"
    if second.p_value is not None:
        known = "not distinguishable" if second in close else "distinguishable"
        text = f"No: the difference to the next is {known} from noise (p = {second.p_value:.2g}), and"
    others = "other setting" if len(compared) == 1 else "other settings"
    text += f" {len(close)} of {len(compared)} {others} cannot be ruled out: {listed}."
    return f"{text} {_projection(ranked[0], close, ALPHA / len(compared))}"


def _projection(best: SettingResult, close: Sequence[SettingResult], alpha: float) -> str:
    """Project how many seeds a new comparison needs, at the differences and deviations found."""
    most = 0
    for one in close:
        deviations = float(np.std(best.finals, ddof=1)), float(np.std(one.finals, ddof=1))
        needed = seeds_needed(float(np.mean(best.finals) - np.mean(one.finals)), deviations, alpha)
        if needed is None:
            return f"As it is, more than {MOST:,} seeds a setting would be needed: count them as equal."
        most = max(most, needed)
    return (
        f"A comparison of {most} fresh seeds a setting would find these differences in {POWER:.0%} of cases "
        "(add `stop: sequential` to analyse before the last one)."
    )
