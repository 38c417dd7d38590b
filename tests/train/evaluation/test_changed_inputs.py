"""Other questions, and tool answers with other digits."""

from collections.abc import Sequence

import numpy as np

from rlinf.data.pictures import address, marked
from rlinf.rollouts.text.conversation import Feedback, Response
from rlinf.train.evaluation.changed_inputs import WrongAnswers, with_other_questions

PICTURE = marked(address(np.zeros((2, 2, 3), np.uint8)))


def test_a_blank_question_keeps_its_pictures() -> None:
    assert with_other_questions([f"How many? {PICTURE}", "2 + 3?"], which="blank", offset=1) == [PICTURE, "..."]


def test_swapped_questions_are_those_of_the_next_task() -> None:
    assert with_other_questions(["a", "a", "b", "b"], which="swapped", offset=2) == ["b", "b", "a", "a"]


class StandIn:
    """Answers each response at once with a tool's result."""

    in_part = True

    def __init__(self) -> None:
        self.given: list[Response] = []

    @property
    def open(self) -> int:
        return len(self.given)

    def give(self, responses: Sequence[Response]) -> None:
        self.given += responses

    def take(self, wait_s: float, *, complete: bool) -> list[Feedback]:
        found = [Feedback(one.row_index, "<result>1890</result>", 0.5, ended=False) for one in self.given]
        self.given = []
        return found


def test_wrong_tools_change_digits_alone() -> None:
    answers = WrongAnswers(StandIn())
    answers.give([Response(3, "<calc>9*210</calc>", cut=False)])
    assert (answers.open, answers.in_part) == (1, True)
    (found,) = answers.take(0.0, complete=True)
    assert (found.row_index, found.observation, found.reward, found.ended) == (3, "<result>2901</result>", 0.5, False)
    assert answers.open == 0
