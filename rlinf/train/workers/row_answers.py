"""Responses on their way to environments that answer conversations side by side, and what comes back."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from rlinf.cluster import WORKER_LOST, Handle, WorkerTimeout
from rlinf.rollouts.text.conversation import Feedback, Idle, Response
from rlinf.train.workers.rounds import AnsweringPool, ConversationSet, handed_over

_GATHER_S = 0.01
_SLICE_S = 0.02
_LOOK_S = 0.002
_GRACE_S = 10.0
"""That a worker has beyond `env.step_timeout_s` to say that a call hangs, before it counts as hanging itself."""


@dataclass
class _Worker:
    """The requests of one worker."""

    waiting: list[Response] = field(default_factory=list)
    given: dict[int, Response] = field(default_factory=dict)
    again: set[int] = field(default_factory=set)
    """Of ``given``: those that its predecessor died over."""
    handle: Handle | None = None
    life: int = 0
    submitted: float = 0.0

    @property
    def open(self) -> int:
        return len(self.waiting) + len(self.given)


class RowAnswers:
    """One round of conversations at the environments of all workers."""

    in_part = True

    def __init__(self, pool: AnsweringPool, round: ConversationSet, timeout_s: float | None) -> None:
        self._pool, self._round, self._timeout_s = pool, round, timeout_s
        self._workers = [_Worker() for _ in round.slices]

    @property
    def open(self) -> int:
        return sum(worker.open for worker in self._workers)

    def grade(self, responses: Iterable[Response | Idle]) -> Iterator[Feedback]:
        """Answers to each of ``responses``, as they come."""
        heard = time.monotonic()
        for response in responses:
            wait_s = 0.0
            if isinstance(response, Idle):
                wait_s = response.wait_s
            else:
                self.give([response])
            if isinstance(response, Idle) or time.monotonic() - heard >= _GATHER_S:
                yield from self._exchange(wait_s)
                heard = time.monotonic()
        while self.open:
            yield from self._exchange(_SLICE_S)

    def give(self, responses: Sequence[Response]) -> None:
        for response in responses:
            self._workers[self._round.rank(response)].waiting.append(response)

    def take(self, wait_s: float, *, complete: bool) -> list[Feedback]:
        return self._exchange(wait_s)

    def _exchange(self, wait_s: float) -> list[Feedback]:
        """Hands in what waits; returns what has been said, after ``wait_s`` seconds at the latest."""
        until = time.monotonic() + wait_s
        heard: list[Feedback] = []
        while not heard:
            for rank, worker in enumerate(self._workers):
                if worker.handle is None and worker.open:
                    self._hand_in(rank, worker, min(_SLICE_S, max(0.0, until - time.monotonic())))
                if worker.handle is not None and (worker.handle.done() or self._stuck(worker)):
                    heard += self._take(rank, worker)
            left = until - time.monotonic()
            if heard or left <= 0:
                break
            time.sleep(min(_LOOK_S, left))
        return heard

    def _hand_in(self, rank: int, worker: _Worker, wait_s: float) -> None:
        ready, worker.waiting = worker.waiting, []
        worker.given.update((response.place, response) for response in ready)
        worker.submitted, worker.life = time.monotonic(), self._pool.lives[rank]
        worker.handle = self._pool.group.submit_one(rank, "exchange", self._round.name, handed_over(ready), wait_s)

    def _stuck(self, worker: _Worker) -> bool:
        return self._timeout_s is not None and time.monotonic() - worker.submitted >= self._timeout_s + _GRACE_S

    def _take(self, rank: int, worker: _Worker) -> list[Feedback]:
        """The answer of a worker; one that died or stands still is restarted."""
        assert worker.handle is not None
        handle, worker.handle = worker.handle, None
        try:
            said: list[Feedback] = handle.result(timeout=0.0 if self._stuck(worker) else None)
        except WorkerTimeout as error:
            self._pool.restart(rank, error, counted=False)
            return self._lose(worker, list(worker.given), "timeout", str(error))
        except WORKER_LOST as error:
            if worker.life == self._pool.lives[rank]:
                self._pool.restart(rank, error)
            # What it died over twice is at fault; the rest is asked again.
            lost = self._lose(worker, [place for place in worker.given if place in worker.again], "error", str(error))
            worker.again = set(worker.given)
            worker.waiting = [*worker.given.values(), *worker.waiting]
            return lost
        for graded in said:
            response = worker.given.pop(graded.place)
            worker.again.discard(graded.place)
            if graded.lost:
                self._pool.lost(graded)
            else:
                self._pool.remember(rank, self._round, [response])
        return said

    def _lose(self, worker: _Worker, places: Sequence[int], failure: str, account: str) -> list[Feedback]:
        lost = []
        for place in places:
            del worker.given[place]
            worker.again.discard(place)
            lost.append(self._pool.lost(Feedback.lost_row(place, failure, account)))
        return lost
