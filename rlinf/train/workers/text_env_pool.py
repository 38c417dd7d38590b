"""The text environments of all workers as one vector of conversations.

A worker that dies is restarted and its conversations are replayed. A step that takes longer than `env.step_timeout_s`
is ended the same way, since nothing else reaches every kind of hang; it costs the conversations that it hung over.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rlinf.cluster import WORKER_LOST, Handle, WorkerGroup, WorkerTimeout
from rlinf.cluster.pool import ResilientPool
from rlinf.rollouts.simulator.failures import FailureCount
from rlinf.rollouts.text.conversation import Answers, Feedback, FeedbackBatch, Hung, Response
from rlinf.rollouts.text.demonstrated import Demonstration
from rlinf.rollouts.text.env_worker import EnvFacts
from rlinf.rollouts.text.tokens.decoding import ResponseText
from rlinf.schema import EnvConfig
from rlinf.train.workers.rounds import ConversationSet, handed_over

_MIXTURE = "env.tasks"
"""Name of the environments where `env.id` names none."""
_SLICE_S = 0.02
_POLL_S = 0.002
_GRACE_S = 10.0
"""The time that a worker has beyond `env.step_timeout_s` to report that one conversation hangs."""


class TextEnvPool(ResilientPool):
    """Fits `rollouts.text.conversation.TextEnvs`."""

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
        self._rounds: dict[int, ConversationSet] = {}
        """By channel; 0 is that of the last :meth:`reset`."""
        self._started: dict[int, Any] = {}
        """Of the worker that was restarted last: the resets of its channels."""
        self._texts: Sequence[ResponseText] = ()

    def read_tokens(self, texts: Sequence[ResponseText]) -> None:
        """Responses may come as tokens from now on: workers decode them, by an entry of ``texts`` per environment."""
        self._texts = texts
        self.call("read_tokens", texts)

    @property
    def busy_s(self) -> float:
        """Seconds of grading so far, of the busiest worker."""
        return max(self._busy_s)

    def facts(self, split: str) -> EnvFacts:
        if split not in self._facts:
            self._facts[split] = self.call_one(0, "facts", split)
        return self._facts[split]

    def demonstrations(self, split: str, task_ids: Sequence[int]) -> list[Demonstration]:
        return self.call_one(0, "demonstrations", split, list(task_ids))

    def texts(self, split: str, task_ids: Sequence[int]) -> list[list[str]]:
        """Texts of each task, to train a tokenizer on: the prompt first."""
        return self.call_one(0, "texts", split, list(task_ids))

    def prompts(self, split: str, task_ids: Sequence[int]) -> list[str]:
        """Return the first observation of each task; running conversations are not disturbed."""
        return self.call_one(0, "prompts", split, list(task_ids))

    def difficulties(self, split: str, task_ids: Sequence[int], by: str) -> list[float]:
        """How hard each task is, as `data.curriculum.by` measures it."""
        results: list[float] = self.call_one(0, "difficulties", split, list(task_ids), by)
        return results

    def reset(self, split: str, task_ids: Sequence[int]) -> tuple[Sequence[str], dict[str, Any]]:
        """Start conversations; those of the last call are over."""
        return self._start(ConversationSet.of(split, 0, task_ids, self.size), 0)

    def open_channel(self, channel: int, task_ids: Sequence[int]) -> tuple[Sequence[str], dict[str, Any]]:
        """Start conversations of training that go on in parallel with all others, until :meth:`close_channel`.

        Each ``channel`` above 0 has environments of its own in every worker; the next round of it uses them again.
        """
        return self._start(ConversationSet.of("train", channel, task_ids, self.size), channel)

    def close_channel(self, channel: int) -> None:
        """End the conversations of a channel."""
        del self._rounds[channel]

    def continue_channel(self, channel: int, task_ids: Sequence[int], answered: Iterable[Response]) -> None:
        """Open a channel as :meth:`open_channel`, for which an earlier session has had ``answered``.

        Environments receive them again. Responses of a conversation are in their order.
        """
        round = self._rounds[channel] = ConversationSet.of("train", channel, task_ids, self.size)
        round.remember(answered)
        for rank in round.ranks:
            self.play_back(rank, round)

    def answers(self, channel: int = 0) -> Answers:
        """Return the environments of a channel, or of the last :meth:`reset`, for the responses of their
        conversations."""
        round = self._rounds[channel]
        facts = self.facts(round.split)
        if facts.steps_rows:
            self._failures.expect_together(sum(map(len, round.tasks)))
        return Grading(self, round, facts, self._timeout_s)

    def _start(self, round: ConversationSet, channel: int) -> tuple[Sequence[str], dict[str, Any]]:
        self._rounds[channel] = round
        lives = list(self.lives)
        handles = {rank: self.group.submit_one(rank, "reset", *round.start(rank)) for rank in round.ranks}
        results = []
        for rank, handle in handles.items():
            try:
                results.append(handle.result())
            except WORKER_LOST as error:
                if lives[rank] == self.lives[rank]:
                    self.restart(rank, error)
                results.append(self._started.pop(channel))
        observations = [text for result in results for text in result[0]]
        # Columnar infos of several workers, one after another; what is no column of that length is left out.
        infos = [result[1] for result in results]
        sizes = [len(result[0]) for result in results]
        names = [
            name
            for name in infos[0]
            if all(name in info and len(info[name]) == size for info, size in zip(infos, sizes, strict=True))
        ]
        return observations, ({name: [value for info in infos for value in info[name]] for name in names})

    def lost(self, graded: Feedback) -> Feedback:
        """Count a conversation that the environment failed over.

        Raises:
            EnvFailureError: that was one too many.
        """
        if graded.failure == "timeout":
            self.timeouts += 1
        else:
            self.errors += 1
        self._failures.add("step", "timeouts" if graded.failure == "timeout" else "failures", graded.account)
        return graded

    def remember(self, rank: int, round: ConversationSet, given: list[Response]) -> None:
        """Responses that the worker has answered: part of what is repeated after its death."""
        self._failures.went_well("step", len(given))
        round.past[rank] += given

    def busy(self, rank: int, seconds: float) -> None:
        """Count what a worker has spent on answers."""
        self._busy_s[rank] += seconds

    def state_dict(self) -> dict[str, Any]:
        """Return the counts of failures, which go on in a run that is resumed."""
        return {"timeouts": self.timeouts, "errors": self.errors, "stepped": self._failures.stepped}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.timeouts, self.errors = state["timeouts"], state["errors"]
        self._failures.total = self.timeouts + self.errors
        if state["stepped"]:
            self._failures.take_over(True)

    def recover(self, rank: int) -> Any:
        """Start all conversations of the worker again and repeat all answers since."""
        if self._texts:
            self.group.call_one(rank, "read_tokens", self._texts)
        self._started = {
            channel: self.play_back(rank, round) for channel, round in self._rounds.items() if rank in round.ranks
        }

    def play_back(self, rank: int, round: ConversationSet) -> Any:
        """Start the worker's conversations of one round again and repeat all answers since; return their reset."""
        started = self.group.call_one(rank, "reset", *round.start(rank))
        if round.past[rank]:
            self.group.call_one(rank, "replay", round.name, handed_over(round.past[rank]))
        return started


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
        worker.given.update((response.row_index, response) for response in ready)
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
            # What it died over twice is at fault; the rest is sent again.
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
            response = worker.given.pop(graded.row_index)
            worker.again.discard(graded.row_index)
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
        return [self._pool.lost(Feedback.lost_row(one.row_index, failure, account)) for one in responses]
