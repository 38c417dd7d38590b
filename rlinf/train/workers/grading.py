"""Responses on their way to the environments of all workers, and what comes back."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rlinf.cluster import WORKER_LOST, Handle, WorkerTimeout
from rlinf.rollouts.text.conversation import Feedback, FeedbackBatch, Hung, Response
from rlinf.rollouts.text.env_worker import EnvFacts
from rlinf.train.workers.rounds import ConversationSet, handed_over

if TYPE_CHECKING:
    from rlinf.train.workers.text_env_pool import TextEnvPool

_SLICE_S = 0.02
_POLL_S = 0.002
_GRACE_S = 10.0
"""The time that a worker has beyond `env.step_timeout_s` to report that one conversation hangs."""


@dataclass
class _Worker:
    """The responses of one worker."""

    waiting: list[Response] = field(default_factory=list)
    """Go with the next call, all together."""
    suspects: deque[Response] = field(default_factory=deque)
    """Go before them, one at a time: those over which the worker hung or died together."""
    given: dict[int, Response] = field(default_factory=dict)
    again: set[int] = field(default_factory=set)
    """Of ``given``: those over which its predecessor died."""
    handle: Handle | None = None
    life: int = 0
    submitted: float = 0.0

    @property
    def open(self) -> int:
        return len(self.waiting) + len(self.suspects) + len(self.given)

    def next(self) -> list[Response]:
        """Return the responses of the next call."""
        if self.suspects:
            return [self.suspects.popleft()]
        ready, self.waiting = self.waiting, []
        return ready


class Grading:
    """One round of conversations at the environments of all workers (`rollouts.text.conversation.Answers`).

    A worker that is free is given the responses that have come for it so far. Environments that have ``step_row``
    answer side by side and are called in short slices. Environments that can't step in part are given all that there
    are when nothing more comes without an answer of theirs.
    """

    def __init__(self, pool: TextEnvPool, round: ConversationSet, facts: EnvFacts, timeout_s: float | None) -> None:
        self._pool, self._round, self._timeout_s = pool, round, timeout_s
        self._side_by_side, self.in_part = facts.steps_rows, facts.steps_rows or facts.steps_in_part
        self._workers = {rank: _Worker() for rank in round.ranks}

    @property
    def open(self) -> int:
        """Responses without feedback."""
        return sum(worker.open for worker in self._workers.values())

    def give(self, responses: Sequence[Response]) -> None:
        for response in responses:
            self._workers[self._round.rank(response)].waiting.append(response)

    def take(self, wait_s: float, *, complete: bool) -> list[Feedback]:
        """Return the feedback since the last call; waits for ``wait_s`` seconds at most.

        ``complete``: no response follows until environments have answered.
        """
        until = time.monotonic() + wait_s
        while True:
            taken: list[Feedback] = []
            for rank, worker in self._workers.items():
                if worker.handle is None and worker.open and (self.in_part or complete):
                    self._submit(rank, worker, min(_SLICE_S, max(0.0, until - time.monotonic())))
                if worker.handle is not None and (worker.handle.done() or self._late(worker)):
                    taken += self._collect(rank, worker)
            left = until - time.monotonic()
            if taken or left <= 0:
                return taken
            time.sleep(min(_POLL_S, left))

    def _submit(self, rank: int, worker: _Worker, wait_s: float) -> None:
        ready = worker.next()
        worker.given.update((response.place, response) for response in ready)
        worker.submitted, worker.life = time.monotonic(), self._pool.lives[rank]
        worker.handle = self._pool.group.submit_one(rank, "exchange", self._round.name, handed_over(ready), wait_s)

    def _late(self, worker: _Worker) -> bool:
        if self._timeout_s is None:
            return False
        # A worker that answers side by side finds by itself which conversation hangs.
        limit = self._timeout_s + (_GRACE_S if self._side_by_side else 0.0)
        return time.monotonic() - worker.submitted >= limit

    def _collect(self, rank: int, worker: _Worker) -> list[Feedback]:
        """Return the feedback of a worker; one that died or hangs is restarted."""
        assert worker.handle is not None
        handle, worker.handle = worker.handle, None
        try:
            result: FeedbackBatch | Hung = handle.result(timeout=0.0 if self._late(worker) else None)
        except WorkerTimeout as error:
            if self._timeout_s is None:
                raise
            self._pool.restart(rank, error, counted=False)
            return self._at_fault(worker, list(worker.given), "timeout", str(error))
        except WORKER_LOST as error:
            if worker.life == self._pool.lives[rank]:
                self._pool.restart(rank, error)
            # What it died over twice is at fault; the rest is asked again.
            lost = self._at_fault(worker, [row for row in worker.given if row in worker.again], "error", str(error))
            worker.again = set(worker.given)
            worker.waiting = [*worker.given.values(), *worker.waiting]
            worker.given.clear()
            return lost
        if isinstance(result, Hung):
            self._pool.play_back(rank, self._round)
            return self._at_fault(worker, list(worker.given), "timeout", result.account)
        answered: list[Response] = []
        for graded in result.rows:
            response = worker.given.pop(graded.place)
            worker.again.discard(graded.place)
            if graded.lost:
                self._pool.lost(graded)
            else:
                answered.append(response)
        self._pool.remember(rank, self._round, answered)
        self._pool.busy(rank, result.seconds)
        return result.rows

    def _at_fault(self, worker: _Worker, indices: Sequence[int], failure: str, account: str) -> list[Feedback]:
        """Retry each response over which the worker hung or died alone, if it can be; otherwise all are lost."""
        responses = [worker.given.pop(row) for row in indices]
        worker.again.difference_update(indices)
        if len(responses) > 1 and self.in_part and not self._side_by_side:
            worker.suspects.extend(responses)
            return []
        return [self._pool.lost(Feedback.lost_row(one.place, failure, account)) for one in responses]
