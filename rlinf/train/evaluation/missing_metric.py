"""An evaluation that lacks a metric which a setting of the run needs, reported before the run is over."""

from __future__ import annotations

from collections.abc import Mapping


def missing_metric(name: str, metrics: Mapping[str, float], success_key: str) -> str | None:
    """Explain why the metrics of a step have no ``name``.

    None if they have it, or if nothing was evaluated in the step. An evaluation without a single whole episode,
    because the environment broke in all of them, lacks every metric.
    """
    evaluated = [other for other in metrics if other.startswith("eval/") and other.count("/") == 1]
    if not name.startswith("eval/") or name in metrics or not evaluated:
        return None
    if metrics.get("eval/failures") and not any(other.endswith("/n") for other in metrics):
        return None
    text = f"{name} is no metric of this run's evaluations: {', '.join(evaluated)}"
    if "eval/return" not in metrics:
        return text
    return f"{text}{missing_success(name, success_key)}"


def missing_success(name: str, success_key: str) -> str:
    """Return the end of a sentence that reports the metric ``name`` as missing; empty if it is no rate of success.

    >>> missing_success("eval/return", "success")
    ''
    """
    if not name.partition("/")[2].startswith("success_"):
        return ""
    return (
        f". The environment tells no success: no step's info has the key {success_key!r} (env.success_key). Name that "
        "key if it has another, report it in the info of every step, or take eval/return"
    )
