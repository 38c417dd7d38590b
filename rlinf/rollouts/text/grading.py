"""Answers of text environments to responses, row by row, however and in whatever order they are graded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rlinf.columns import Column


class Response(NamedTuple):
    """A policy's turn on its way to the environment."""

    place: int
    """Position of the conversation among those of the last reset."""
    said: str | Column[int]
    """Its text, or its tokens, which become text where it is graded."""
    cut: bool
    """The length limit ended it, not the policy."""


class Pause(NamedTuple):
    """In a stream of responses: none has come, so that what environments have to say can be heard."""

    wait_s: float
    """How long environments may be waited for; more than 0 where no response comes before they have answered."""


@dataclass(frozen=True)
class Graded:
    """The environment's answer to one response."""

    place: int
    """Position of the conversation among those of the last reset."""
    observation: str
    reward: float
    ended: bool
    facts: Mapping[str, Any] = field(default_factory=dict)
    """The row's entries of the environment's infos."""
    truncated: bool = False
    """The environment ended the conversation before its natural end, at its limit of turns."""
    lost: bool = False
    """The environment failed over the response; the rest means nothing."""
    masked: bool = False
    """The environment itself wants the conversation left out of the batch."""
    failure: str = ""
    """Of a lost one: "timeout" or "error"."""
    account: str = ""
    """What happened to a lost one, in words."""
    seconds: float = 0.0
    """That the environment took, where it takes conversations one by one."""
    text: str | None = None
    """The response as the environment read it, where it was given tokens."""
    step_positions: tuple[int, ...] = ()
    """Likewise: the token of the response in which each step of ``facts["step_ends"]`` ends."""

    @classmethod
    def lost_row(cls, place: int, failure: str, account: str, *, seconds: float = 0.0) -> Graded:
        """The answer in place of one that the environment failed to give."""
        return cls(place, "", 0.0, True, lost=True, failure=failure, account=account, seconds=seconds)


@dataclass(frozen=True)
class Grades:
    """One worker's answers to the responses that it was given together, in their order."""

    rows: list[Graded]
    seconds: float
    """How long it took."""


@dataclass(frozen=True)
class Hung:
    """A worker's reply in place of grades: the environment's step took longer than `env.step_timeout_s`."""

    account: str
    """Where it hung, in words."""


def graded_rows(result: tuple[Sequence[str], Any, Any, Any, Mapping[str, Any]], places: Sequence[int]) -> list[Graded]:
    """Some conversations of what a vector environment's ``step`` returned; infos that are no columns are left out."""
    observations, rewards, terminated, truncated, infos = result
    count = len(observations)
    columns = {name: value for name, value in infos.items() if hasattr(value, "__getitem__") and len(value) == count}
    return [
        Graded(
            place,
            observations[place],
            float(rewards[place]),
            bool(terminated[place]) or bool(truncated[place]),
            {name: column[place] for name, column in columns.items()},
            truncated=bool(truncated[place]),
            masked="masked" in columns and bool(columns["masked"][place]),
        )
        for place in places
    ]
