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
    # The time of a step holds everything but the evaluation after it, which is training time all the same.
    names = ("time/sft_step_s", "time/step_s", "time/evaluation_s")
    timed = [_filled(series[name]) for name in names if name in series]
    if timed:
        results["axis/minutes"] = [seconds / 60 for seconds in accumulate(map(sum, zip(*timed, strict=True)))]
    return results


def _running_total(values: Sequence[float | None]) -> Column:
    return list(accumulate(_filled(values)))


def _filled(values: Sequence[float | None]) -> list[float]:
    return [value or 0.0 for value in values]
