"""Responses on their way to vector environments, which answer several at once, and what comes back."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from rlinf.cluster import WORKER_LOST, Handle, WorkerTimeout
from rlinf.rollouts.text.conversation import Feedback, FeedbackBatch, Hung, Idle, Response
from rlinf.train.workers.rounds import AnsweringPool, ConversationSet, handed_over

_GATHER_S = 0.01
_LOOK_S = 0.002


@dataclass
class _Pending:
    """The responses that one worker has: ``given`` is with it while there is a ``handle``, ``waiting`` comes next."""

    waiting: list[Response] = field(default_factory=list)
    given: list[Response] = field(default_factory=list)
    handle: Handle | None = None
    life: int = 0
    submitted: float = 0.0
    """When it was given them, on the monotonic clock."""
    _since: float = 0.0

    @property
    def open(self) -> int:
        return len(self.waiting) + (len(self.given) if self.handle is not None else 0)

    def add(self, response: Response) -> None:
        if not self.waiting:
            self._since = time.monotonic()
        self.waiting.append(response)

    def late(self, timeout_s: float | None) -> bool:
        """The worker has had its time."""
        return timeout_s is not None and time.monotonic() - self.submitted >= timeout_s

    def due(self) -> bool:
        """The oldest answer has waited long enough, and the worker is free."""
        late = bool(self.waiting) and time.monotonic() - self._since >= _GATHER_S
        return late and (self.handle is None or self.handle.done())


class PartAnswers:
    """One round of conversations at the environments of all workers.

    A worker that is free is given the responses that have come for it so far. Environments that can't step in part get
    all that there are when nothing more comes without an answer of theirs.
    """

    def __init__(self, pool: AnsweringPool, round: ConversationSet, timeout_s: float | None, *, in_part: bool) -> None:
        self._pool, self._round, self._timeout_s, self.in_part = pool, round, timeout_s, in_part
        self._pending = {rank: _Pending() for rank in round.ranks}

    @property
    def open(self) -> int:
        return sum(one.open for one in self._pending.values())

    def grade(self, responses: Iterable[Response | Idle]) -> Iterator[Feedback]:
        """Answers to each of ``responses``; those that come within :data:`_GATHER_S` seconds go together."""
        for response in responses:
            if isinstance(response, Idle):
                if self.in_part or response.wait_s:
                    yield from self.take(response.wait_s, complete=bool(response.wait_s))
                continue
            self.give([response])
            if self.in_part:
                for rank in [rank for rank, one in self._pending.items() if one.due()]:
                    yield from self._collect(rank)
                    self._hand_in(rank)
        while self.open:
            for rank in self._pending:
                yield from self._collect(rank)
            for rank in self._pending:
                self._hand_in(rank)

    def give(self, responses: Sequence[Response]) -> None:
        for response in responses:
            self._pending[self._round.rank(response)].add(response)

    def take(self, wait_s: float, *, complete: bool) -> list[Feedback]:
        until = time.monotonic() + wait_s
        while True:
            heard: list[Feedback] = []
            for rank, one in self._pending.items():
                if one.handle is None and (self.in_part or complete):
                    self._hand_in(rank)
                if one.handle is not None and (one.handle.done() or one.late(self._timeout_s)):
                    heard += self._collect(rank)
            if heard or time.monotonic() >= until:
                return heard
            time.sleep(_LOOK_S)

    def _hand_in(self, rank: int) -> None:
        one = self._pending[rank]
        if one.waiting:
            one.given, one.waiting = one.waiting, []
            one.submitted, one.life = time.monotonic(), self._pool.lives[rank]
            one.handle = self._submit(rank, one.given)

    def _submit(self, rank: int, given: Sequence[Response]) -> Handle:
        return self._pool.group.submit_one(rank, "answer", self._round.name, handed_over(given))

    def _collect(self, rank: int) -> Iterator[Feedback]:
        """Waits for what the worker was given last."""
        one = self._pending[rank]
        if one.handle is None:
            return
        handle, one.handle = one.handle, None
        graded = self._result(rank, handle, one.given, time.monotonic() - one.submitted, one.life)
        if isinstance(graded, Hung):
            yield from self._one_by_one(rank, one.given, graded)
        else:
            yield from self._entered(rank, one.given, graded)

    def _result(
        self, rank: int, handle: Handle, given: list[Response], spent_s: float, life: int
    ) -> FeedbackBatch | Hung:
        """The answer of a worker to ``given``; one that died is restarted and asked again, one that hangs restarted."""
        left = None if self._timeout_s is None else max(0.0, self._timeout_s - spent_s)
        try:
            result: FeedbackBatch | Hung = handle.result(timeout=left)
        except WorkerTimeout as error:
            if self._timeout_s is None:
                raise
            self._pool.restart(rank, error, counted=False)
            return Hung(str(error))
        except WORKER_LOST as error:
            if life == self._pool.lives[rank]:
                self._pool.restart(rank, error)
            result = self._submit(rank, given).result(timeout=self._timeout_s)
        if isinstance(result, Hung):
            self._pool.play_back(rank, self._round)
        return result

    def _one_by_one(self, rank: int, given: list[Response], hung: Hung) -> Iterator[Feedback]:
        """After a step that hung: the same responses alone, so that only those that hang alone are lost.

        An environment that cannot step in part loses all of them.
        """
        alone = len(given) > 1 and self.in_part
        for response in given:
            graded: FeedbackBatch | Hung = hung
            if alone:
                life = self._pool.lives[rank]
                graded = self._result(rank, self._submit(rank, [response]), [response], 0.0, life)
            if isinstance(graded, Hung):
                yield self._pool.lost(Feedback.lost_row(response.place, "timeout", graded.account))
            else:
                yield from self._entered(rank, [response], graded)

    def _entered(self, rank: int, given: list[Response], graded: FeedbackBatch) -> Iterator[Feedback]:
        self._pool.remember(rank, self._round, given)
        self._pool.busy(rank, graded.seconds)
        yield from graded.rows
