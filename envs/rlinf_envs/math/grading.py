"""Verdicts on mathematical answers, in this process: in full, or as far as no algebra is needed."""

from __future__ import annotations

from dataclasses import dataclass

from rlinf_envs.math.compare import Equal, same
from rlinf_envs.math.final_answer import final_answer, reference_answer
from rlinf_envs.math.symbolic import Unreadable, equal
from rlinf_envs.tasks import Status


@dataclass(frozen=True)
class Verdict:
    """What became of one response."""

    correct: bool
    status: Status
    extracted: str | None
    """The final answer as it stands in the response; None where none was found."""


class _NeedsAlgebra(Exception):
    """Structure does not decide: an expression has to be parsed."""


def grade(response: str, answer: str) -> Verdict:
    """Grades without any time limit; algebra on hostile input may take for ever."""
    return _grade(response, answer, equal)


def grade_cheaply(response: str, answer: str) -> Verdict | None:
    """The verdict of :func:`grade` where no algebra is needed for it (plain numbers, equal texts, choices); else None.

    Takes microseconds, and bounded time on any input. The code is the same as that of :func:`grade` up to the first
    question of algebra, so the two cannot disagree.
    """
    try:
        return _grade(response, answer, _refuse)
    except _NeedsAlgebra:
        return None


def _refuse(given: str, wanted: str) -> bool:
    raise _NeedsAlgebra


def _grade(response: str, answer: str, decide: Equal) -> Verdict:
    extracted = final_answer(response)
    if extracted is None:
        return Verdict(False, "unparsable", None)
    try:
        correct = same(extracted, reference_answer(answer), decide)
    except Unreadable:
        return Verdict(False, "unparsable", extracted)
    return Verdict(correct, "correct" if correct else "wrong", extracted)
