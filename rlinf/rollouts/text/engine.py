"""The engine of conversations: one scheduler between a sampler and environments.

A conversation is a coroutine (:func:`converse`). It awaits a completion of the policy, then feedback of its
environment, and so on until one of them, or a limit, ends it. The engine resumes each conversation that has what it
awaits. Requests and responses of many conversations travel together, so a row costs the driver no message of its own.

Completions are drawn from streams named by step, task, sample and turn, and a session's completions do not depend on
what else is open. So the rows are the same in whatever order answers come. Who decides when a batch is complete drives
the engine: :meth:`Engine.run` to the end of all conversations, or :meth:`Engine.advance` until enough of them are over.
"""

from __future__ import annotations

import time
import types
from collections.abc import Callable, Collection, Coroutine, Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from rlinf.base import timeline
from rlinf.data.messages import Completion, SampleRequest, SamplingParams
from rlinf.interfaces import SamplerSession
from rlinf.rollouts.text.conversation import Answers, Row
from rlinf.rollouts.text.members import TextMixtureEnv
from rlinf.rollouts.text.open_batch import OpenBatch, joined

_POLL_S = 0.1
_TURN_POLL_S = 0.02
"""The same while environments have responses, which may be answered meanwhile."""
_WAIT_S = 0.05
CONVERSATIONS = "conversations"
"""The process of the timeline with what each conversation awaits."""

Awaited = Literal["completion", "feedback"]
Key = Callable[[int], tuple[int, ...]]
"""The beginning of the names of a row's random streams, by its index."""
Halt = Callable[[OpenBatch, int], int | None]
"""How many tokens the next response of a row may have under these weights; None: to its own end."""


@dataclass(frozen=True)
class TurnLimits:
    """The limits of each turn of each conversation of a run."""

    params: SamplingParams
    """``max_new_tokens`` limits one turn."""
    max_tokens: int
    """After the first prompt."""

    def room(self, row: Row) -> int:
        """Return how many tokens the next response may have; below 1 the conversation is over."""
        return min(self.params.max_new_tokens, self.max_tokens - len(row.tokens))


@types.coroutine
def _next(awaited: Awaited) -> Generator[Awaited, Any, Any]:
    """Await the policy's next turn or the environment's answer to the last one; return it and its seconds."""
    return (yield awaited)


async def converse(batch: OpenBatch, index: int, member: TextMixtureEnv, limits: TurnLimits) -> None:
    """Hold the conversation of a row, from the point that its batch has reached to its end."""
    row, renderer = batch.rows[index], member.renderer
    while not row.done:
        if len(row.answers) == batch.heard[index]:
            completion, seconds = await _next("completion")
            if completion.finish_reason == "length" and limits.room(row) < limits.params.max_new_tokens:
                completion = replace(completion, finish_reason="conversation_length")
            row.append_response(completion, renderer, seconds=seconds)
        feedback, seconds = await _next("feedback")
        row.read(feedback, renderer, seconds=seconds)
        batch.heard[index] += 1
        if not row.done and batch.heard[index] >= member.max_turns:
            row.cut("turns")
        if not row.done and limits.room(row) < 1:
            row.cut("conversation_length")


@dataclass(eq=False)
class _Open:
    """The conversations of a batch, each suspended at the point at which it awaits something."""

    batch: OpenBatch
    key: Key
    answers: Answers | None
    suspended: dict[int, Coroutine[Awaited, Any, None]] = field(default_factory=dict)
    unrequested: list[int] = field(default_factory=list)
    """Indices of rows that await a completion which is not requested yet."""
    interrupted: list[int] = field(default_factory=list)
    """The same, but not before the next session."""
    outgoing: list[int] = field(default_factory=list)
    """Indices of rows whose response is to be given to the environment."""
    since: dict[int, float] = field(default_factory=dict)
    """Index of a row that awaits feedback -> since when."""
    requested: int = 0
    """Completions that samplers work on."""


@dataclass
class _Request:
    """A request at the sampler, for consecutive rows."""

    open: _Open
    first: int
    """Index of its first row."""
    first_sample: int
    left: int
    """Completions to come."""
    since: float


class Engine:
    """Runs conversations between one session of a sampler and their environments."""

    def __init__(
        self,
        member: Callable[[int], TextMixtureEnv],
        limits: TurnLimits,
        *,
        halt: Halt = lambda batch, index: None,
        ordered: bool = False,
        timed: bool = True,
    ) -> None:
        """``member``: the environment of a task. ``ordered``: feedback is taken in the order of rows, so that nothing
        depends on the clock; otherwise as it comes. ``timed``: turns have the seconds that they took; responses that
        are requested all at once have no time of their own."""
        self._member, self._limits, self._halt, self._ordered = member, limits, halt, ordered
        self._timed = timed
        self._session: SamplerSession | None = None
        self._open: list[_Open] = []
        self._requests: dict[int, _Request] = {}
        self._next_request = 0
        self.generation_s = 0.0
        """Seconds of waiting for the sampler."""

    @property
    def busy(self) -> bool:
        """Whether a sampler or an environment works on something."""
        return bool(self._requests) or any(one.answers is not None and one.since for one in self._open)

    @property
    def generating(self) -> bool:
        """Whether a sampler works on something."""
        return bool(self._requests)

    def __contains__(self, batch: OpenBatch) -> bool:
        return any(one.batch is batch for one in self._open)

    def begin(self, batch: OpenBatch, key: Key, answers: Answers | None, *, first: bool = False) -> None:
        """Begin or continue the conversations of a batch; with ``first`` they come before those of other batches.

        Without ``answers`` a conversation is over as soon as it awaits feedback.
        """
        opened = _Open(batch, key, answers)
        self._open.insert(0 if first else len(self._open), opened)
        for index, row in enumerate(batch.rows):
            if not batch.over(index) and not row.done:
                opened.suspended[index] = converse(batch, index, self._member(row.task_id), self._limits)
                self._resume(opened, index, None)

    def end(self, batch: OpenBatch) -> None:
        """Drop a batch and its suspended conversations."""
        (opened,) = [one for one in self._open if one.batch is batch]
        self._open.remove(opened)
        for conversation in opened.suspended.values():
            conversation.close()

    def run(self, session: SamplerSession | None) -> None:
        """Run all conversations as far as ``session`` responds, then close it."""
        self.connect(session)
        try:
            while self.busy:
                self.advance()
        finally:
            if session is not None:
                session.close()

    def connect(self, session: SamplerSession | None) -> None:
        """Request completions of ``session`` from now on, also of responses that were interrupted."""
        self._session = session
        for opened in self._open:
            opened.unrequested, opened.interrupted = opened.unrequested + opened.interrupted, []
        self.request()

    def interrupt(self) -> None:
        """End the requests and the session; unfinished responses are kept for the next session."""
        while self._requests and self._session is not None:
            self._give_completions(self._session.abort(list(self._requests)))
            self._take_completions(_POLL_S)
        if self._session is not None:
            self._session.close()
            self._session = None

    @property
    def connected(self) -> bool:
        """Whether there is a session."""
        return self._session is not None

    def advance(self) -> None:
        """Take what the sampler and environments have finished, and resume the conversations that await it."""
        self._take_completions(_TURN_POLL_S if any(one.since for one in self._open) else _POLL_S)
        for opened in self._open:
            if opened.answers is not None and opened.since:
                self._exchange_feedback(opened, opened.answers)
        self.request()

    def request(self) -> None:
        """Request the next response of every row that awaits one; rows that share a prompt are one request."""
        if self._session is None:
            return
        requests: list[SampleRequest] = []
        for opened in self._open:
            waiting, opened.unrequested = sorted(opened.unrequested), []
            for index in waiting:
                self._add_request(opened, index, requests)
        if requests:
            self._session.submit(requests)

    def _add_request(self, opened: _Open, index: int, requests: list[SampleRequest]) -> None:
        """Append the request of a row to ``requests``, or join the row to the last of them."""
        batch, row = opened.batch, opened.batch.rows[index]
        written: Sequence[int] = batch.begun[index].token_ids if index in batch.begun else ()
        until = self._halt(batch, index)
        if until is not None and until <= len(written):
            opened.interrupted.append(index)
            return
        limit = self._limits.room(row) if until is None else until
        opened.requested += 1
        last = requests[-1] if requests else None
        if last is not None and not (batch.heard[index] or written or last.prefix):
            before = self._requests[last.request_id]
            follows = before.open is opened and before.first + before.left == index
            # Only then is the row before it one of this batch.
            alike = follows and not batch.heard[before.first] and last.params.max_new_tokens == limit
            if alike and batch.rows[before.first].group == row.group:
                requests[-1] = replace(last, n=last.n + 1)
                before.left += 1
                return
        name, self._next_request = self._next_request, self._next_request + 1
        self._requests[name] = _Request(opened, index, row.sample, 1, time.monotonic())
        requests.append(
            SampleRequest(
                request_id=name,
                prompt_ids=(*row.prompt_ids, *row.tokens),
                n=1,
                params=replace(self._limits.params, max_new_tokens=limit),
                key=(*opened.key(index), row.task_id, batch.heard[index]),
                prefix=written,
                first_sample=row.sample,
                group=batch.first_group + row.group,
                pictures=tuple(row.pictures),
            )
        )

    def _take_completions(self, wait_s: float) -> None:
        """Take the completions that the sampler has finished or aborted."""
        if not self._requests or self._session is None:
            return
        began = time.perf_counter()
        completions = self._session.poll(wait_s)
        self.generation_s += time.perf_counter() - began
        self._give_completions(completions)

    def _give_completions(self, completions: Sequence[Completion]) -> None:
        """Give completions to their conversations; those that are not whole are kept for the next session."""
        for completion in completions:
            request = self._requests[completion.request_id]
            opened, position = request.open, request.first + completion.sample_index - request.first_sample
            request.left -= 1
            if not request.left:
                del self._requests[completion.request_id]
            opened.requested -= 1
            batch = opened.batch
            whole = joined(batch.begun.pop(position, None), completion)
            halted = whole.finish_reason == "length" and self._halt(batch, position) is not None
            if completion.finish_reason == "abort" or halted:
                if whole.token_ids:
                    batch.begun[position] = whole
                opened.interrupted.append(position)
            else:
                self._record("generation", opened, position, request.since)
                self._resume(opened, position, (whole, self._seconds(request.since)))

    def _exchange_feedback(self, opened: _Open, answers: Answers) -> None:
        """Give responses to the environments of a batch, and resume the conversations whose feedback is there."""
        answers.give([opened.batch.rows[position].response(position) for position in opened.outgoing])
        opened.outgoing.clear()
        complete = not opened.requested and not opened.unrequested
        arrived = answers.take(0.0 if self._requests else _WAIT_S, complete=complete)
        if self._ordered:
            while answers.open and (answers.in_part or complete):
                arrived += answers.take(_WAIT_S, complete=complete)
            arrived.sort(key=lambda feedback: feedback.row_index)
        for feedback in arrived:
            since = opened.since.pop(feedback.row_index)
            self._record("environment", opened, feedback.row_index, since)
            self._resume(opened, feedback.row_index, (feedback, self._seconds(since)))

    def _record(self, name: str, opened: _Open, index: int, since: float) -> None:
        """Record what a conversation awaited since ``since``, for the timeline of the step."""
        if timeline.recording():
            row, turn = opened.batch.rows[index], opened.batch.heard[index]
            timeline.record(
                name,
                since,
                process=CONVERSATIONS,
                track=f"task {row.task_id}, sample {row.sample}",
                details={"task": row.task_id, "sample": row.sample, "turn": turn, "tokens": len(row.tokens)},
            )

    def _seconds(self, since: float) -> float:
        """Return the seconds of a turn that began at ``since``; 0 if turns are not timed."""
        return time.monotonic() - since if self._timed else 0.0

    def _resume(self, opened: _Open, index: int, value: object) -> None:
        """Run a conversation up to what it awaits next."""
        try:
            awaited = opened.suspended[index].send(value)
        except StopIteration:
            del opened.suspended[index]
            opened.batch.finish(index)
            return
        if awaited == "completion":
            opened.unrequested.append(index)
            return
        opened.since[index] = time.monotonic()
        opened.outgoing.append(index)
        if opened.answers is None:
            opened.batch.finish(index)


class StreamSession:
    """A session over a sampler's stream: for the responses of one turn, which are requested all at once."""

    def __init__(self, stream: Callable[[Sequence[SampleRequest]], Iterator[Completion]]) -> None:
        self._stream = stream
        self._running: Iterator[Completion] = iter(())
        self.open = 0

    def submit(self, requests: Sequence[SampleRequest]) -> None:
        self._running, self.open = self._stream(requests), sum(request.n for request in requests)

    def poll(self, max_s: float) -> list[Completion]:
        """Return the next completion, however long it takes.

        :raises RuntimeError: the sampler, which may be a user's own, has ended its stream without all responses.
        """
        if not self.open:
            return []
        completion = next(self._running, None)
        if completion is None:
            raise RuntimeError(f"the sampler's stream ended with {self.open} of its responses missing")
        self.open -= 1
        return [completion]

    def abort(self, request_ids: Collection[int]) -> list[Completion]:
        """Return nothing: a stream goes on to its end."""
        return []

    def close(self) -> None:
        if isinstance(self._running, Generator):
            self._running.close()
