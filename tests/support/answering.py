"""Feedback to responses in tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rlinf.rollouts.text.conversation import Answers, Feedback, Response


class AtOnce:
    """Environments of this process: each response is answered when answers are taken."""

    in_part = True

    def __init__(self, answer: Callable[[Response], Feedback]) -> None:
        self._answer = answer
        self._waiting: list[Response] = []

    @property
    def open(self) -> int:
        return len(self._waiting)

    def give(self, responses: Sequence[Response]) -> None:
        self._waiting += responses

    def take(self, wait_s: float, *, complete: bool) -> list[Feedback]:
        waiting, self._waiting = self._waiting, []
        return [self._answer(response) for response in waiting]


def graded(answers: Answers, *responses: Response) -> list[Feedback]:
    """The feedback to ``responses``, when all of it is there."""
    answers.give(responses)
    found: list[Feedback] = []
    while answers.open:
        found += answers.take(0.05, complete=True)
    return found
