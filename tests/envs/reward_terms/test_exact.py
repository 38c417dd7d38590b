"""Answers compared as text."""

from __future__ import annotations

from typing import Any

import pytest
from rlinf_envs.errors import SettingError
from rlinf_envs.reward_terms.exact import exact


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


def test_settings_are_checked() -> None:
    with pytest.raises(SettingError, match="did you mean 'contains'"):
        exact(compare="contain")


@pytest.mark.parametrize(
    ("response", "answer"),
    [("3.5", "35"), ("-5", "5"), ("1/2", "12"), ("2:30", "230"), ("x+1", "x1"), ("2^3", "23"), ("C++", "C"),
     ("C#", "C"), ("3 - 5", "35"), ("1,2", "12"), ("A+", "A"), (".5", "5"), ("a", "the"), ("a", ""),
     ("?", "!"), ("+", "-"), ("Levi's", "Levi")],
)  # fmt: skip
def test_signs_of_numbers_and_names_count(response: str, answer: str) -> None:
    assert score(exact(), response, answer) == 0.0
    assert score(exact(), response, response) == 1.0


@pytest.mark.parametrize(
    ("response", "answer"),
    [("1,000", "1000"), ("$1,234.50", "1234.50"), ("5.", "5"), ("5%", "5"), ("U.S.A.", "usa"), ("don't", "dont"),
     ("A.", "A"), ("“Paris”!", "paris"), ("Moscow's", "Moscow's")],
)  # fmt: skip
def test_other_punctuation_does_not_count(response: str, answer: str) -> None:
    assert score(exact(), response, answer) == 1.0


@pytest.mark.parametrize(
    ("response", "reference", "worth"),
    [
        ("I got 15", "5", 0.0),
        ("nothing", "no", 0.0),
        ("It is 3.5", "5", 0.0),
        ("It is -5 degrees", "5", 0.0),
        ("It is 5/6", "5", 0.0),
        ("15 and 5.", "5", 1.0),
        ("Paris's museums", "Paris", 1.0),
        ("答案是北京。", "北京", 1.0),
        ("答案是B。", "B", 1.0),
    ],
)
def test_a_reference_is_contained_as_whole_words(response: str, reference: str, worth: float) -> None:
    assert score(exact(compare="contains"), response, reference) == worth
