"""Conversations that run free: each goes on as soon as its own environment has answered.

Responses are drawn from streams named by step, task, sample and turn, and a session's responses do not depend on what
else is open, so the rows are the same in whatever order answers come.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from rlinf.data.messages import SampleRequest
from rlinf.interfaces import SamplerSession
from rlinf.rollouts.text.conversation import Feedback, Idle, Response
from rlinf.rollouts.text.turns import Turns

_POLL_S = 0.02
_WAIT_S = 0.05


@dataclass(frozen=True)
class _Asked:
    """A request at the sampler."""

    places: dict[int, int]
    """Sample that is still to come -> its row."""
    room: int
    since: float


class AsyncConversations:
    """The conversations of a batch between sampler and environments, each at a turn of its own."""

    def __init__(
        self, session: SamplerSession, turns: Turns, *, key: tuple[int, ...], generated: Callable[[float], None]
    ) -> None:
        """``key`` begins the random streams' names; ``generated`` receives the seconds that were waited for the
        sampler alone."""
        self._session, self._turns, self._rows, self._key = session, turns, turns.rows, key
        self._generated = generated
        self._asked: dict[int, _Asked] = {}
        self._given: dict[int, float] = {}
        """Row that its environment reads -> since when."""
        self._next_request = 0

    def responses(self) -> Iterator[Response | Idle]:
        """Responses as the sampler finishes them, until every conversation has ended. The caller calls :meth:`hear`
        with what the environment says to them, in any order."""
        self._ask(range(len(self._rows)))
        while self._asked or self._given:
            if self._asked:
                yield from self._finished()
            yield Idle(0.0 if self._asked else _WAIT_S)

    def hear(self, graded: Feedback) -> None:
        """Takes the environment's answer to a response; the conversation goes on unless it is over."""
        if self._turns.hear(graded, seconds=time.monotonic() - self._given.pop(graded.place)):
            self._ask([graded.place])

    def _finished(self) -> Iterator[Response]:
        """The responses that the sampler has finished since the last time."""
        began = time.perf_counter()
        completions = self._session.poll(_POLL_S)
        self._generated(time.perf_counter() - began)
        for completion in completions:
            asked = self._asked[completion.request_id]
            place = asked.places.pop(completion.sample_index)
            if not asked.places:
                del self._asked[completion.request_id]
            now = time.monotonic()
            said = self._turns.say(place, completion, room=asked.room, seconds=now - asked.since)
            self._given[place] = now
            yield said

    def _ask(self, places: Sequence[int]) -> None:
        """Asks the sampler for the next turn of these rows; those of a group with the same prompt are one request."""
        requests: list[SampleRequest] = []
        for place in places:
            row, room = self._rows[place], self._turns.room(place)
            last = requests[-1] if requests else None
            if not self._turns.heard[place] and last is not None and last.group == row.group:
                requests[-1] = replace(last, n=last.n + 1)
                self._asked[last.request_id].places[row.sample] = place
                continue
            name, self._next_request = self._next_request, self._next_request + 1
            self._asked[name] = _Asked({row.sample: place}, room, time.monotonic())
            requests.append(self._turns.request(name, place, room, key=self._key, group=row.group))
        self._session.submit(requests)
