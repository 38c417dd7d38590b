"""Instructions whose keeping can be counted."""

from __future__ import annotations

from typing import Any

import pytest
from rlinf_envs.errors import SettingError
from rlinf_envs.reward_terms.constraints import CONSTRAINTS, constraints

KEPT = {
    "max_words": (3, "one two three", "one two three four"),
    "min_words": (2, "one two", "one"),
    "max_sentences": (1, "One. ", "One. Two."),
    "min_sentences": (2, "One! Two?", "One: 1.5"),
    "paragraphs": (2, "a\n\nb", "a\nb"),
    "bullets": (2, "- a\n* b", "- a"),
    "keywords": (["sun"], "The Sun shines", "Sunday"),
    "forbidden": (["sun"], "Sunday", "The sun"),
    "frequency": ({"go": 2}, "go, go", "go, gone"),
    "starts_with": ("Dear", " Dear all", "My dear"),
    "ends_with": ("Bye.", "x Bye.\n", "Bye. x"),
    "lowercase": (True, "abc", "Abc"),
    "uppercase": (True, "ABC", "ABc"),
    "no_commas": (True, "a b", "a, b"),
    "json": (True, '```json\n{"a": 1}\n```', '{"a": 1,}'),
    "title": (True, "<<On rain>>\nx", "On rain"),
    "placeholders": (2, "[name] of [town]", "[name]"),
    "postscript": ("P.S.", "x\nP.S. y", "x P.S. y"),
    "quoted": (True, '"all of it"', '"some" of it'),
}


def score(term: Any, response: str, **row: Any) -> float:
    return float(term(prompt="", response=response, answer="", row=row))


def test_every_constraint_has_a_case() -> None:
    assert set(KEPT) == set(CONSTRAINTS)


@pytest.mark.parametrize("name", KEPT)
def test_a_constraint_is_kept_or_not(name: str) -> None:
    value, good, bad = KEPT[name]
    term = constraints(require={name: value})
    assert (score(term, good), score(term, bad)) == (1.0, 0.0)


def test_the_share_counts_of_all_rows_and_of_the_row() -> None:
    term = constraints(require={"lowercase": True}, field="wanted")
    assert score(term, "a, b", wanted={"no_commas": True}) == 0.5
    assert (
        score(constraints(field="wanted", all_or_nothing=True), "a,", wanted={"no_commas": True, "json": False}) == 0.0
    )
    assert score(constraints(field="wanted"), "anything", wanted={}) == 1.0


def test_brackets_without_end_are_no_json() -> None:
    assert score(constraints(require={"json": True}), "[" * 50_000) == 0.0


def test_mistakes_are_named() -> None:
    with pytest.raises(SettingError, match="did you mean 'max_words'"):
        constraints(require={"max_word": 3})
    with pytest.raises(SettingError, match="max_words takes a value of type int, got True"):
        constraints(require={"max_words": True})
    with pytest.raises(SettingError, match="needs require"):
        constraints()


def test_thoughts_do_not_count_and_a_blank_response_keeps_nothing() -> None:
    term = constraints(require={"lowercase": True, "max_words": 3})
    assert score(term, "<think>LET ME THINK, AT LENGTH</think>it is so") == 1.0
    for blank in ("", " \n", "<think>it never ends"):
        assert score(term, blank) == 0.0


def test_rows_of_a_table_have_text_and_nulls() -> None:
    term = constraints(field="wanted")
    assert score(term, "a, b", wanted='{"no_commas": true, "max_words": 2}') == 0.5
    assert score(term, "a, b", wanted={"no_commas": None, "max_words": 2, "keywords": None}) == 1.0
    with pytest.raises(SettingError, match="did you mean 'no_commas'"):
        score(term, "a", wanted='{"no_comma": true}')
