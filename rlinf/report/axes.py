"""The horizontal axes of a curve: steps, tokens, environment steps, minutes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate

Column = list[float | None]


def axes(series: Mapping[str, Sequence[float | None]]) -> dict[str, Column]:
    """Return columns `axis/...` to add to those of the metrics; an axis that the run has no numbers for is left out.

    >>> axes({"step": [0, 1, 2], "rollout/tokens": [None, 10.0, 20.0]})["axis/tokens"]
    [0.0, 10.0, 30.0]
    """
    results: dict[str, Column] = {}
    for axis, metric in (("axis/tokens", "rollout/tokens"), ("axis/env_steps", "rollout/env_steps")):
        if metric in series:
            results[axis] = _running_total(series[metric])
    if "time/step_s" in series:
        # The time of a step holds everything but the evaluation after it, which is training time all the same.
        steps, evaluations = (
            series["time/step_s"],
            series.get("time/evaluation_s") or [None] * len(series["time/step_s"]),
        )
        seconds = [(step or 0.0) + (evaluation or 0.0) for step, evaluation in zip(steps, evaluations, strict=True)]
        results["axis/minutes"] = [value / 60 if value is not None else None for value in _running_total(seconds)]
    return results


def _running_total(values: Sequence[float | None]) -> Column:
    return list(accumulate(value or 0.0 for value in values))
