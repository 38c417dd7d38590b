"""The text environments of all workers as one vector of conversations.

A worker that dies is restarted and its conversations are replayed. A step that takes longer than `env.step_timeout_s`
is ended the same way, since nothing else reaches every kind of hang; it costs the conversations that it hung over.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rlinf.cluster import WORKER_LOST, Handle, WorkerGroup, WorkerTimeout
from rlinf.cluster.pool import ResilientPool
from rlinf.config.schema import EnvConfig
from rlinf.portions import shares
from rlinf.rollouts.simulator.failures import FailureCount
from rlinf.rollouts.text.demonstrated import Demonstration
from rlinf.rollouts.text.env_worker import EnvFacts
from rlinf.rollouts.text.response_text import ResponseText
from rlinf.rollouts.text.rows import Graded, Grades, Hung, Pause, Response
from rlinf.train.workers.row_answers import RowAnswers

_GATHER_S = 0.01
_LOOK_S = 0.002
_MIXTURE = "env.tasks"
"""Name of the environments where `env.id` names none."""


class TextEnvPool(ResilientPool):
    """Fits `rollouts.text.rollout.TextEnvs`."""

    def __init__(self, group: WorkerGroup, env: EnvConfig) -> None:
        super().__init__(group)
        self.timeouts = 0
        """Responses that the environment hung over."""
        self._timeout_s = env.step_timeout_s or None
        self._failures = FailureCount(env.max_failures, group.size, env.id or _MIXTURE)
        self._failures.went_well("reset", 1)
        self.errors = 0
        """Responses that the environment raised an exception over."""
        self._facts: dict[str, EnvFacts] = {}
        self._busy_s = [0.0] * group.size
        self._open: dict[int, tuple[str, list[int], list[list[Response]]]] = {}
        """Rank -> split, task ids and all responses since the last reset: for replay."""
        self._slices: list[slice] = []
        self._text: ResponseText | None = None

    def read_tokens(self, text: ResponseText) -> None:
        """Responses may come as tokens from now on: workers decode them."""
        self._text = text
        self.group.call("read_tokens", text)

    @property
    def busy_s(self) -> float:
        """Seconds of grading so far, of the busiest worker."""
        return max(self._busy_s)

    def facts(self, split: str) -> EnvFacts:
        if split not in self._facts:
            self._facts[split] = self.group.call_one(0, "facts", split)
        return self._facts[split]

    def demonstrations(self, split: str, task_ids: Sequence[int]) -> list[Demonstration]:
        return self.group.call_one(0, "demonstrations", split, list(task_ids))

    def prompts(self, split: str, task_ids: Sequence[int]) -> list[str]:
        """The first observation of each task; running conversations are not disturbed."""
        return self.group.call_one(0, "prompts", split, list(task_ids))

    def reset(self, split: str, task_ids: Sequence[int]) -> tuple[Sequence[str], dict[str, Any]]:
        self._slices = shares(len(task_ids), self.group.size)
        parts = [list(task_ids[part]) for part in self._slices]
        self._open = {rank: (split, part, []) for rank, part in enumerate(parts) if part}
        handles = {
            rank: self.group.submit_one(rank, "reset", split, parts[rank], self._slices[rank].start)
            for rank in self._open
        }
        results = []
        for rank, handle in handles.items():
            try:
                results.append(handle.result())
            except WORKER_LOST as error:
                results.append(self.restart(rank, error))
        observations = [text for result in results for text in result[0]]
        return observations, _columns([result[1] for result in results], [len(result[0]) for result in results])

    def grade(self, split: str, count: int, responses: Iterable[Response | Pause]) -> Iterator[Graded]:
        """Answers to each of ``responses``, in any order.

        A worker that is free is given the responses that have come for it so far, while more are awaited: those that
        come within :data:`_GATHER_S` go together. Environments that cannot step in part get all that there are when
        nothing more comes without an answer of theirs.
        """
        if self.facts(split).steps_rows:
            yield from RowAnswers(self, self._slices, split, self._timeout_s).grade(responses)
            return
        in_part = self.facts(split).steps_in_part
        pending = {rank: _PendingGrades() for rank in self._open}
        for response in responses:
            if isinstance(response, Pause):
                if in_part or response.wait_s:
                    yield from self._meanwhile(pending, response.wait_s)
                continue
            rank = next(rank for rank in pending if response.place < self._slices[rank].stop)
            pending[rank].add(response)
            if in_part:
                for rank in [rank for rank in pending if pending[rank].due()]:
                    yield from self._collect(rank, pending[rank])
                    self._hand_in(rank, pending[rank])
        while any(one.waiting or one.handle for one in pending.values()):
            for rank, one in pending.items():
                yield from self._collect(rank, one)
            for rank, one in pending.items():
                self._hand_in(rank, one)

    def _meanwhile(self, pending: Mapping[int, _PendingGrades], wait_s: float) -> Iterator[Graded]:
        """Answers of workers within ``wait_s`` seconds; free ones are given what there is."""
        until = time.monotonic() + wait_s
        heard = False
        while True:
            for rank, one in pending.items():
                if one.handle is None:
                    self._hand_in(rank, one)
                if one.handle is not None and (one.handle.done() or one.late(self._timeout_s)):
                    yield from self._collect(rank, one)
                    heard = True
            if heard or time.monotonic() >= until:
                return
            time.sleep(_LOOK_S)

    def _hand_in(self, rank: int, pending: _PendingGrades) -> None:
        if pending.waiting:
            pending.given, pending.waiting = pending.waiting, []
            pending.handle, pending.submitted = self._submit(rank, pending.given), time.monotonic()

    def _submit(self, rank: int, given: Sequence[Response]) -> Handle:
        return self.group.submit_one(rank, "answer", self._open[rank][0], given)

    def _collect(self, rank: int, pending: _PendingGrades) -> Iterator[Graded]:
        """Waits for what the worker was given last."""
        if pending.handle is None:
            return
        handle, pending.handle = pending.handle, None
        graded = self._result(rank, handle, pending.given, time.monotonic() - pending.submitted)
        if isinstance(graded, Hung):
            yield from self._one_by_one(rank, pending.given, graded)
        else:
            yield from self._entered(rank, pending.given, graded)

    def _result(self, rank: int, handle: Handle, given: Sequence[Response], spent_s: float) -> Grades | Hung:
        """The answer of a worker to ``given``; one that died is restarted and asked again, one that hangs restarted."""
        left = None if self._timeout_s is None else max(0.0, self._timeout_s - spent_s)
        try:
            result: Grades | Hung = handle.result(timeout=left)
        except WorkerTimeout as error:
            if self._timeout_s is None:
                raise
            self.restart(rank, error, counted=False)
            return Hung(str(error))
        except WORKER_LOST as error:
            self.restart(rank, error)
            result = self._submit(rank, given).result(timeout=self._timeout_s)
        if isinstance(result, Hung):
            self.recover(rank)
        return result

    def _one_by_one(self, rank: int, given: Sequence[Response], hung: Hung) -> Iterator[Graded]:
        """After a step that hung: the same responses alone, so that only those that hang alone are lost.

        An environment that cannot step in part loses all of them.
        """
        alone = len(given) > 1 and self.facts(self._open[rank][0]).steps_in_part
        for response in given:
            graded: Grades | Hung = hung
            if alone:
                graded = self._result(rank, self._submit(rank, [response]), [response], 0.0)
            if isinstance(graded, Hung):
                yield self.lost(Graded.lost_row(response.place, "timeout", graded.account))
            else:
                yield from self._entered(rank, [response], graded)

    def lost(self, graded: Graded) -> Graded:
        """Counts a conversation that the environment failed over.

        Raises:
            EnvFailureError: that was one too many.
        """
        if graded.failure == "timeout":
            self.timeouts += 1
        else:
            self.errors += 1
        self._failures.add("step", f"{graded.failure}s", graded.account)
        return graded

    def remember(self, rank: int, given: list[Response]) -> None:
        """Responses that the worker has answered: part of what is repeated after its death."""
        self._failures.went_well("step", len(given))
        self._open[rank][2].append(given)

    def _entered(self, rank: int, given: list[Response], graded: Grades) -> Iterator[Graded]:
        self.remember(rank, given)
        self._busy_s[rank] += graded.seconds
        yield from graded.rows

    def recover(self, rank: int) -> Any:
        """Starts the worker's conversations again and repeats all answers since; returns their reset."""
        if self._text is not None:
            self.group.call_one(rank, "read_tokens", self._text)
        split, task_ids, past = self._open[rank]
        started = self.group.call_one(rank, "reset", split, task_ids, self._slices[rank].start)
        if self.facts(split).steps_rows and past:
            self.group.call_one(rank, "replay", split, [response for given in past for response in given])
            return started
        for given in past:
            self._submit(rank, given).result()
        return started


@dataclass
class _PendingGrades:
    """The responses that one worker has: ``given`` is with it while there is a ``handle``, ``waiting`` comes next."""

    waiting: list[Response] = field(default_factory=list)
    given: list[Response] = field(default_factory=list)
    handle: Handle | None = None
    submitted: float = 0.0
    """When it was given them, on the monotonic clock."""
    _since: float = 0.0

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


def _columns(infos: Sequence[dict[str, Any]], sizes: Sequence[int]) -> dict[str, Any]:
    """Columnar infos of several workers, one after another; what is no column of that length is left out."""
    names = [
        name for name in infos[0]
        if all(name in info and len(info[name]) == size for info, size in zip(infos, sizes, strict=True))
    ]  # fmt: skip
    return {name: [value for info in infos for value in info[name]] for name in names}
