"""Letters that responses choose."""

from __future__ import annotations

from typing import Any

import pytest
from rlinf_envs.errors import SettingError
from rlinf_envs.reward_terms.choice import choice, chosen


def score(term: Any, response: str, answer: str) -> float:
    return float(term(prompt="", response=response, answer=answer, row={}))


@pytest.mark.parametrize(
    ("response", "worth"),
    [
        ("B", 1.0),
        ("(B).", 1.0),
        ("<answer>B</answer>", 1.0),
        ("The answer is (B), since A is wrong", 1.0),
        ("I first thought A.\nAnswer: B", 1.0),
        ("A or B", 0.0),
        ("\\boxed{A, B}", 0.0),
        ("The answer is A. No: the answer is B", 1.0),
        ("Because A is larger", 0.0),
        ("", 0.0),
    ],
)
def test_a_letter_is_chosen(response: str, worth: float) -> None:
    assert score(choice(), response, "B") == worth
    assert score(choice(), response, "(B)") == worth


@pytest.mark.parametrize(
    "response",
    ["B", "b", "(B)", "B)", "b)", "**B**", "Option B", "option b", "(B) Paris", "B. Paris", "**B.** Paris", "B: Paris",
     "My choice: B", "Correct: B", "I choose B.", "I pick option B", "So B is correct.", "B is the correct answer.",
     "Let me think. A is wrong.\n\nB", "Thought...\nB) Paris", "B\n\nExplanation: the cell is its unit.", "#### B",
     "#### B) Paris", '{"answer": "B"}'],
)  # fmt: skip
def test_letters_by_themselves(response: str) -> None:
    assert chosen(response, "ABCD") == "B"


@pytest.mark.parametrize(
    "response",
    ["The answer is b.", "the answer is (b)", "Answer: b", "**Answer:** B", "**Answer: B**", "Answer: **B) Paris**",
     "The correct answer is B because A is wrong.", "Therefore, the answer should be B.", "The answer would be (B).",
     "Hence the correct answer is option (B).", "The answer is:\n**B. Paris**", "The answer is $B$.",
     "The answer is `B`.", "The answer is \\(B\\).", 'The answer is "B".', "The answer is **(B)**.",
     "So the answer is B!", "the answer is\nB", "A is wrong, so the answer is B. A would be right if...",
     "The answer is B, not A.", "The answer is not A but B.", "The answer is in the table.\n\nB", "Réponse : B",
     "答案是B", "答案：B", "Antwort: B"],
)  # fmt: skip
def test_letters_that_are_announced(response: str) -> None:
    assert chosen(response, "ABCD") == "B"


@pytest.mark.parametrize(
    "content",
    ["B", "b", "(B) Paris", "B. Paris is a city", "B. A city in France", "Option B", "B: I am here", "\\text{B}",
     "\\textbf{(B)}", "\\text{(B) } 12"],
)  # fmt: skip
def test_letters_in_tags_and_boxes(content: str) -> None:
    assert chosen(f"<answer>{content}</answer>", "ABCD") == "B"
    assert chosen(f"So it is $\\boxed{{{content}}}$.", "ABCD") == "B"
    assert score(choice(), "The answer is B", content) == 1.0


@pytest.mark.parametrize(
    "response",
    ["A or B", "Both A and B", "<answer>A, B</answer>", "<answer>A and B</answer>", "The answer is A or B", "A B C D",
     "The answer could be A, B or C.", "Options: A B C D", "(A) red (B) blue", "The answer is not B.", "I am not sure",
     "<think>The answer is B</think> It is open.", "A city in France", "Is it A? No, or B"],
)  # fmt: skip
def test_several_letters_and_words_are_no_answer(response: str) -> None:
    assert chosen(response, "ABCD") is None


def test_the_pronoun_is_no_letter() -> None:
    assert chosen("I am sure that it is C", "ABCDEFGHI") == "C"


def test_choices_must_be_capital_letters() -> None:
    with pytest.raises(SettingError, match="capital letters such as ABCD"):
        choice(choices="a")


def test_a_choice_that_is_denied_is_not_chosen() -> None:
    term = choice()
    responses = {"Option A is wrong, so option C.": "C", "It must be option C. Option A is incorrect.": "C"}
    for response, answer in responses.items():
        assert term(prompt="", response=response, answer=answer, row={}) == 1.0
        assert term(prompt="", response=response, answer="A", row={}) == 0.0
