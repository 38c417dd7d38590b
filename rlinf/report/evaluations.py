"""The evaluations of `rlinf eval` on a page, and how they differ if their tasks are the same."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rlinf.report.runs import RunRecord
from rlinf.train.evaluation.outcomes import paired_rates
from rlinf.train.evaluation.paired import compare
from rlinf.train.evaluation.saved import SavedEvaluation

MAX_COMPARED = 8
"""Evaluations of the same tasks that are compared with one another, the newest ones: 28 pairs."""


def evaluation_rows(run: RunRecord) -> list[dict[str, Any]]:
    """One row for each rate of each evaluation, with its interval."""
    rows = []
    for saved in run.evaluations:
        metrics, settings = saved.content["metrics"], saved.content["settings"].get("evaluation", {})
        facts = {
            "file": saved.path.name,
            "step": saved.content["step"],
            "data": saved.content.get("label") or "its own tasks",
            "samples": settings.get("samples"),
            "temperature": settings.get("temperature"),
        }
        for name in (name for name in metrics if f"{name}/ci_low" in metrics):
            rows.append(
                {
                    **facts,
                    "metric": name.removeprefix("eval/"),
                    "value": metrics[name],
                    "low": metrics[f"{name}/ci_low"],
                    "high": metrics[f"{name}/ci_high"],
                    "tasks": metrics.get(f"{name}/n"),
                }
            )
    return rows


def task_rows(run: RunRecord, headlines: Sequence[str]) -> list[dict[str, Any]]:
    """One row for each task of `env.tasks`: its rate in the first and in the last evaluation of the training.

    The rates are those of the first of ``headlines`` that has any; ``low`` and ``high`` are the last one's interval.
    """
    for headline in headlines:
        # Interval and number of episodes have names of their own below the headline, but no number of episodes.
        names = [name for name in run.series if name.startswith(f"{headline}/") and f"{name}/n" in run.series]
        if names:
            return [_task_row(run, name, name.removeprefix(f"{headline}/")) for name in names]
    return []


def _task_row(run: RunRecord, name: str, task: str) -> dict[str, Any]:
    values = run.values(name)
    last = {
        key: run.values(f"{name}/{part}")[-1] for key, part in (("low", "ci_low"), ("high", "ci_high"), ("count", "n"))
    }
    return {"task": task, "before": values[0] if len(values) > 1 else None, "value": values[-1], **last}


def comparisons(runs: Sequence[RunRecord]) -> list[dict[str, Any]]:
    """Paired differences between all evaluations of the page that were made on exactly the same tasks."""
    by_tasks: dict[str, list[tuple[str, SavedEvaluation]]] = {}
    for run in runs:
        for saved in run.evaluations:
            if saved.outcomes:
                by_tasks.setdefault(str(saved.content.get("tasks_sha256")), []).append((run.name, saved))
    results = []
    for group in by_tasks.values():
        newest = sorted(group, key=lambda one: one[1].path.stat().st_mtime)[-MAX_COMPARED:]
        for (first_run, first), (second_run, second) in itertools.combinations(newest, 2):
            if not paired_rates(first.outcomes).keys() & paired_rates(second.outcomes).keys():
                continue
            for difference in compare(first.outcomes, second.outcomes):
                results.append(
                    {
                        **asdict(difference),
                        "difference": difference.difference,
                        "a": f"{first_run}: {first.path.name}",
                        "b": f"{second_run}: {second.path.name}",
                    }
                )
    return results
