"""The parts of a text environment: a source of tasks and a judge of responses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

Status = Literal["correct", "wrong", "unparsable", "timeout"]

STATUSES: tuple[Status, ...] = ("correct", "wrong", "unparsable", "timeout")


@dataclass(frozen=True)
class Task:
    """One question with its reference answer."""

    question: str
    answer: str
    """Empty where responses to the task can be imitated, and not graded."""
    domain: str
    solution: str | None = None
    """A worked solution that ends in the answer, where the source has one."""
    row: Mapping[str, Any] = field(default_factory=dict)
    """The source's own record; reward functions read it."""
    response: str | None = None
    """A whole response to imitate as it is, where the source has one."""
    other_answers: tuple[str, ...] = ()
    """Further answers that are right."""


@dataclass(frozen=True)
class Judgement:
    """A judge's finding on one response."""

    status: Status
    score: float
    """Correctness in [0, 1]; 1 exactly where ``status`` is "correct"."""
    extracted: str | None
    """The final answer as it was found in the response."""


class TaskSource(Protocol):
    """Tasks by id: the same id is the same task in every process."""

    def __len__(self) -> int: ...

    def task(self, task_id: int) -> Task:
        """Return the task of ``task_id`` in [0, len)."""


class ListedTasks:
    """Tasks in memory; the id is the position."""

    def __init__(self, tasks: list[Task]) -> None:
        self._tasks = tasks

    def __len__(self) -> int:
        return len(self._tasks)

    def task(self, task_id: int) -> Task:
        return self._tasks[task_id]


class Judge(Protocol):
    """Grades whole batches, so that it may spread them over processes."""

    def judge(self, responses: Sequence[str], tasks: Sequence[Task]) -> list[Judgement]:
        """One judgement per response, in order."""

    def render(self, answer: str) -> str:
        """``answer`` as a response that this judge reads back: the shortest correct demonstration."""

    def close(self) -> None:
        """End helper processes; a judge is not used afterwards."""


@runtime_checkable
class CutJudge(Protocol):
    """A judge that treats responses cut by the length limit separately; any other grades them like complete ones."""

    def judge_cut(self, responses: Sequence[str], tasks: Sequence[Task]) -> list[Judgement]:
        """One judgement per response, in order."""
