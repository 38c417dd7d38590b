"""Which turn each conversation of a batch is at: what a sampler is asked for it, and how answers are taken in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from rlinf.data.messages import Completion, SampleRequest, SamplingParams
from rlinf.rollouts.text.conversation import Feedback, Response, Row
from rlinf.rollouts.text.members import MixtureEnv


@dataclass(frozen=True)
class TurnLimits:
    """The limits of each turn of each conversation of a run."""

    params: SamplingParams
    """``max_new_tokens`` limits one turn."""
    max_tokens: int
    """After the first prompt."""


class Turns:
    """The conversations of a batch, each at a turn of its own."""

    def __init__(
        self,
        rows: Sequence[Row],
        member: Callable[[int], MixtureEnv],
        limits: TurnLimits,
        *,
        heard: list[int] | None = None,
    ) -> None:
        """``member``: the environment of a task. ``heard``: how many responses of each row the environment has
        answered; it is kept, and counted up."""
        self.rows, self._member, self._limits = rows, member, limits
        self.heard = [0] * len(rows) if heard is None else heard

    def room(self, place: int) -> int:
        """The most tokens that the next response may have; below 1 the conversation is over."""
        return min(self._limits.params.max_new_tokens, self._limits.max_tokens - len(self.rows[place].tokens))

    def request(self, name: int, place: int, room: int, *, key: tuple[int, ...], group: int) -> SampleRequest:
        """The request ``name`` for a row's next response, of at most ``room`` tokens. ``key`` begins its stream's name;
        requests of a ``group`` go to the same sampler."""
        row = self.rows[place]
        return SampleRequest(
            request_id=name,
            prompt_ids=(*row.prompt_ids, *row.tokens),
            n=1,
            params=replace(self._limits.params, max_new_tokens=room),
            key=(*key, row.task_id, self.heard[place]),
            first_sample=row.sample,
            group=group,
        )

    def say(self, place: int, completion: Completion, *, room: int, seconds: float) -> Response:
        """Takes in a response of at most ``room`` tokens; what the environment is to read of it."""
        if completion.finish_reason == "length" and room < self._limits.params.max_new_tokens:
            completion = replace(completion, finish_reason="conversation_length")
        row = self.rows[place]
        row.append_response(completion, self._member(row.task_id).renderer, seconds=seconds)
        return row.response(place)

    def hear(self, graded: Feedback, *, seconds: float) -> bool:
        """Takes in what the environment says to a response; whether the conversation goes on."""
        place = graded.place
        row = self.rows[place]
        member = self._member(row.task_id)
        row.read(graded, member.renderer, seconds=seconds)
        self.heard[place] += 1
        if not row.done and self.heard[place] >= member.max_turns:
            row.cut("turns")
        if not row.done and self.room(place) < 1:
            row.cut("conversation_length")
        return not row.done
