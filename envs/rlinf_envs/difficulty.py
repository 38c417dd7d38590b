"""How hard a task is: lengths of its solution or question, or a number that its row has."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rlinf_envs.errors import SettingError
from rlinf_envs.suggest import unknown
from rlinf_envs.tasks import Task

LENGTHS = ("solution_lines", "solution_length", "question_length")
"""Measures that need no column."""

_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


def difficulty(task: Task, by: str, solution: str | None) -> float:
    """Return how hard ``task`` is; larger is harder.

    Args:
        by: one of :data:`LENGTHS` [lines or characters], or a column of the task's row, its metadata or the
            difficulties in that. Text counts by its first number ("Level 3" is 3).
        solution: the worked solution, if there is one.

    Raises:
        SettingError: no such column, a value without a number, or no solution to measure. The message lists the
            numbers that the row has.
    """
    if by == "question_length":
        return float(len(task.question))
    if by in LENGTHS:
        if solution is None:
            raise SettingError(f"{by}: this task has no worked solution: {task.question[:80]!r}")
        lines = [line for line in solution.splitlines() if line.strip()]
        return float(len(lines) if by == "solution_lines" else len(solution))
    columns = _columns(task.row)
    number = _number(columns[by]) if by in columns else None
    if number is None:
        numbers = [name for name, value in columns.items() if _number(value) is not None]
        raise SettingError(unknown("measure of difficulty", by, [*LENGTHS, *numbers]))
    return number


def _columns(row: Mapping[str, Any]) -> dict[str, Any]:
    """All values by name: those of the row go before those of its metadata, and these before its difficulties."""
    results = dict(row)
    for name in ("metadata", "difficulty"):
        inner = results.get(name)
        if isinstance(inner, Mapping):
            results = {**inner, **results}
    return results


def _number(value: Any) -> float | None:
    """Read the value as a number; of text the first number in it, of a list its largest.

    >>> _number("Level 3"), _number([1, 4]), _number("easy")
    (3.0, 4.0, None)
    """
    if isinstance(value, bool | int | float):
        return float(value)
    if isinstance(value, str):
        match = _NUMBER.search(value)
        return float(match[0]) if match and len(value) <= 40 else None
    if isinstance(value, list | tuple) and value and all(isinstance(one, int | float) for one in value):
        return float(max(value))
    return None
