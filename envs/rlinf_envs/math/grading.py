"""Verdicts on mathematical answers, in this process: in full, or as far as no algebra is needed."""

from __future__ import annotations

from dataclasses import dataclass

from rlinf_envs.math.chains import Equal
from rlinf_envs.math.compare import same
from rlinf_envs.math.final_answer import final_answer, reference_answer
from rlinf_envs.math.size import too_large
from rlinf_envs.math.symbolic import Unreadable, equal
from rlinf_envs.tasks import Status


@dataclass(frozen=True)
class Verdict:
    """The result of grading one response; true exactly if the response is correct.

    `status` is "correct", "wrong", "unparsable" (no answer was found, or it cannot be read as mathematics) or
    "timeout" (it took too long). `extracted` is the final answer as it stands in the response, or None: none found.
    Several boxes in a row are joined ("1, 2"), and a number in words that stands alone is written in digits. Comparing
    a verdict with a string or a number raises TypeError: compare `status`, or use `bool`.

    >>> verdict = Verdict(False, "wrong", "71")
    >>> bool(verdict), verdict.correct, verdict.status, verdict.extracted
    (False, False, 'wrong', '71')
    """

    correct: bool
    status: Status
    extracted: str | None

    def __bool__(self) -> bool:
        return self.correct

    def __eq__(self, other: object) -> bool:
        """Equal verdicts. Raises TypeError for a string or a number, which a verdict never equals."""
        if isinstance(other, (str, int, float)):
            raise TypeError(
                f"a verdict is no {type(other).__name__}: compare verdict.status or verdict.correct, or use bool"
            )
        if not isinstance(other, Verdict):
            return NotImplemented
        return (self.correct, self.status, self.extracted) == (other.correct, other.status, other.extracted)


class _TooCostly(Exception):
    """An expression whose numbers are too large to work out."""


class _NeedsAlgebra(Exception):
    """Structure does not decide: an expression has to be parsed."""


def grade(response: str, answer: str) -> Verdict:
    """Grades a complete response without any time limit; algebra on hostile input may take for ever."""
    extracted = final_answer(response)
    return Verdict(False, "unparsable", None) if extracted is None else grade_answer(extracted, answer)


def grade_answer(extracted: str, answer: str) -> Verdict:
    """Grades a final answer as it stands in a response, without any time limit: for a process that can be ended."""
    return _grade(extracted, answer, _sized(equal))


def grade_cheaply(extracted: str, answer: str) -> Verdict | None:
    """Return the verdict of :func:`grade_answer` if it needs no algebra (numbers, equal texts, choices); else None.

    Takes microseconds, and bounded time on any input. The code is the same as that of :func:`grade_answer` up to
    the first question of algebra, so the two cannot disagree.
    """
    try:
        return _grade(extracted, answer, _sized(_refuse))
    except _NeedsAlgebra:
        return None


def _refuse(given: str, requested: str, tolerance: float = 0.0) -> bool:
    raise _NeedsAlgebra


def _sized(decide: Equal) -> Equal:
    """Restrict ``decide`` to expressions whose numbers can be worked out."""

    def decide_if_cheap(given: str, requested: str, tolerance: float = 0.0) -> bool:
        if too_large(given) or too_large(requested):
            raise _TooCostly
        return decide(given, requested, tolerance)

    return decide_if_cheap


def _grade(extracted: str, answer: str, decide: Equal) -> Verdict:
    try:
        correct = same(extracted, reference_answer(answer), decide)
    except Unreadable:
        return Verdict(False, "unparsable", extracted)
    except _TooCostly:
        return Verdict(False, "timeout", extracted)
    return Verdict(correct, "correct" if correct else "wrong", extracted)
