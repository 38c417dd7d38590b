"""A rollout in stages whose questions are answered in any order: while one half waits, the other simulates."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from rlinf.interfaces import ActingPolicy
from rlinf.models.policy_requests import PolicyRequest, RolloutCoroutine, drive

Result = TypeVar("Result")


@dataclass
class WorkerMessage(Generic[Result]):
    """The next wish of a pipelined rollout."""

    questions: list[tuple[int, PolicyRequest]]
    """(stage, question); empty while another stage's question is still open."""
    busy_s: float
    """Seconds spent on getting there: simulating, for the most part."""
    result: Result | None = None
    """Set with the last reply."""


@dataclass(frozen=True)
class RequestSummary:
    """The facts of a request that its carrier to the policy needs."""

    stage: int
    method: str
    rows: int
    """Requested decisions; 0 for a request of another kind."""


@dataclass(frozen=True)
class Notice(Generic[Result]):
    """A message without its questions: they go from the worker to the policy, past the carrier of the notice."""

    requests: list[RequestSummary]
    busy_s: float
    result: Result | None

    @classmethod
    def of(cls, message: WorkerMessage[Result]) -> tuple[Notice[Result], list[PolicyRequest]]:
        """Return the notice, and the questions in its order."""
        requests = [
            RequestSummary(stage, request.method, len(request.arguments[1]) if request.method == "decide" else 0)
            for stage, request in message.questions
        ]
        return cls(requests, message.busy_s, message.result), [request for _, request in message.questions]


class PipelinedRollout(Generic[Result]):
    """Stages side by side, and when all are through an end that makes the result."""

    def __init__(self, stages: Sequence[RolloutCoroutine[None]], end: Callable[[], RolloutCoroutine[Result]]) -> None:
        self._stages, self._end = list(stages), end
        self._open = set(range(len(stages)))
        self._ending: RolloutCoroutine[Result] | None = None

    def begin(self) -> WorkerMessage[Result]:
        """Return the first question of every stage."""
        began = time.perf_counter()
        replies = [self._go_on(stage, None) for stage in range(len(self._stages))] or [self._finish(None)]
        questions = [question for reply in replies for question in reply.questions]
        return WorkerMessage(questions, time.perf_counter() - began, replies[-1].result)

    def answer(self, stage: int, answer: Any) -> WorkerMessage[Result]:
        """Continues a stage with the answer to its question."""
        began = time.perf_counter()
        reply = self._go_on(stage, answer) if self._ending is None else self._finish(answer)
        reply.busy_s = time.perf_counter() - began
        return reply

    def drive(self, policy: ActingPolicy) -> Result:
        """To the end with a policy of this process, stage by stage."""
        for stage in self._stages:
            drive(stage, policy)
        return drive(self._end(), policy)

    def _go_on(self, stage: int, answer: Any) -> WorkerMessage[Result]:
        try:
            return WorkerMessage([(stage, self._stages[stage].send(answer))], 0.0)
        except StopIteration:
            self._open.discard(stage)
        return WorkerMessage([], 0.0) if self._open else self._finish(None)

    def _finish(self, answer: Any) -> WorkerMessage[Result]:
        if self._ending is None:
            self._ending = self._end()
        try:
            return WorkerMessage([(len(self._stages), self._ending.send(answer))], 0.0)
        except StopIteration as end:
            return WorkerMessage([], 0.0, end.value)
