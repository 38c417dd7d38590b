"""Inputs instead of questions and tool answers, to measure whether the policy reads them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rlinf.data.pictures import marked, pictures_of
from rlinf.rollouts.text.conversation import Answers, Feedback, Response
from rlinf.schema.run import Questions

_EMPTY = "..."
"""Text of a blank question without pictures: a prompt needs a token."""
_HIGHER = str.maketrans("0123456789", "1234567890")


def with_other_questions(texts: Sequence[str], *, which: Questions, offset: int) -> list[str]:
    """Return texts without their words, or the texts ``offset`` positions later; pictures go with their words.

    >>> with_other_questions(["2 + 3?", "4 + 4?"], which="swapped", offset=1)
    ['4 + 4?', '2 + 3?']
    >>> with_other_questions(["2 + 3?"], which="blank", offset=1)
    ['...']
    """
    if which == "blank":
        return ["".join(map(marked, pictures_of(text))) or _EMPTY for text in texts]
    return [texts[(index + offset) % len(texts)] for index in range(len(texts))]


class WrongAnswers:
    """Answers of environments in which every digit of an observation is one higher, and 9 is 0."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers

    @property
    def open(self) -> int:
        return self._answers.open

    @property
    def in_part(self) -> bool:
        return self._answers.in_part

    def give(self, responses: Sequence[Response]) -> None:
        self._answers.give(responses)

    def take(self, wait_s: float, *, complete: bool) -> list[Feedback]:
        """Return the answers since the last call, with other digits; pictures stay as they are."""
        result = self._answers.take(wait_s, complete=complete)
        return [
            one if pictures_of(one.observation) else replace(one, observation=one.observation.translate(_HIGHER))
            for one in result
        ]
