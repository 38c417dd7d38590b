"""Answers compared as text, and as letters."""

from __future__ import annotations

from typing import Any

import pytest
from rlinf_envs.errors import SettingError
from rlinf_envs.reward_terms.comparing import choice, exact


def score(term: Any, response: str, answer: str = "", **row: Any) -> float:
    return float(term(prompt="", response=response, answer=answer, row=row))


@pytest.mark.parametrize(
    ("options", "response", "answer", "worth"),
    [
        ({}, "<answer>The Eiffel Tower.</answer>", "eiffel tower", 1.0),
        ({}, "It is \\boxed{Paris}", "paris", 1.0),
        ({}, "It is Paris", "Paris", 0.0),
        ({"normalize": False}, "paris", "Paris", 0.0),
        ({"compare": "contains"}, "It is Paris, of course", "paris", 1.0),
        ({"compare": "contains"}, "It is Rome", "", 0.0),
        ({"compare": "f1"}, "red green", "red blue", 0.5),
        ({"compare": "f1"}, "", "red", 0.0),
    ],
)
def test_texts_are_compared(options: dict[str, Any], response: str, answer: str, worth: float) -> None:
    assert score(exact(**options), response, answer) == worth


def test_the_nearest_of_several_references_counts() -> None:
    term = exact(field="aliases")
    assert score(term, "NYC", aliases=["New York", "nyc"]) == 1.0
    assert score(term, "Boston", aliases=["New York", "nyc"]) == 0.0
    with pytest.raises(SettingError, match="did you mean 'aliases'"):
        score(exact(field="alias"), "x", aliases=[])


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


def test_settings_are_checked() -> None:
    with pytest.raises(SettingError, match="did you mean 'contains'"):
        exact(compare="contain")
    with pytest.raises(SettingError, match="capital letters such as ABCD"):
        choice(choices="a")


def test_a_choice_that_is_denied_is_not_chosen() -> None:
    term = choice()
    responses = {"Option A is wrong, so option C.": "C", "It must be option C. Option A is incorrect.": "C"}
    for response, answer in responses.items():
        assert term(prompt="", response=response, answer=answer, row={}) == 1.0
        assert term(prompt="", response=response, answer="A", row={}) == 0.0
