"""A setting's learning curve: its seeds put together at the steps that all of them have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rlinf.sweep.statistics import iqm, mean_band
from rlinf.sweep.summary import TrialResult

AXES = ("step", "axis/tokens", "axis/env_steps", "axis/minutes")
"""What a curve can be drawn against; those that are not steps are means over the seeds."""


@dataclass(frozen=True)
class _Curve:
    """``low`` and ``high``: the 95% interval of the mean. All columns have one value a step."""

    seeds: int
    axes: Mapping[str, list[float]]
    mean: list[float]
    low: list[float]
    high: list[float]
    median: list[float]
    iqm: list[float]


def curve(trials: Sequence[TrialResult], metric: str, *, points: int | None = None) -> _Curve | None:
    """Compute the curve of a setting's finished trials; about ``points`` steps at most. None if they share no step."""
    columns = [_at_steps(trial, metric) for trial in trials]
    steps = sorted(set.intersection(*(set(column) for column in columns))) if columns else []
    if not steps:
        return None
    every = -(-len(steps) // points) if points else 1
    steps = [steps[index] for index in sorted({*range(0, len(steps), every), len(steps) - 1})]
    values = np.asarray([[column[step] for step in steps] for column in columns], dtype=np.float64)
    mean, low, high = mean_band(values)
    positions = {axis: [_at_steps(trial, axis) for trial in trials] for axis in AXES}
    return _Curve(
        seeds=len(values),
        axes={
            axis: [float(np.mean([index[step] for index in result])) for step in steps]
            for axis, result in positions.items()
            if all(result)
        },
        mean=mean.tolist(),
        low=low.tolist(),
        high=high.tolist(),
        median=np.median(values, axis=0).tolist(),
        iqm=iqm(values.T[:, :, None]).tolist(),
    )


def _at_steps(trial: TrialResult, name: str) -> dict[int, float]:
    column, steps = trial.series.get(name, []), trial.series["step"]
    return {int(step or 0): value for step, value in zip(steps, column, strict=False) if value is not None}
