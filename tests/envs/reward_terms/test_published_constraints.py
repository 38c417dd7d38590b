"""Rows of IFEval and of data sets in its form."""

from __future__ import annotations

import json
from typing import Any

import pytest
from rlinf_envs.errors import SettingError
from rlinf_envs.reward_terms.constraints import constraints
from rlinf_envs.reward_terms.published_constraints import INSTRUCTIONS

NULLS = dict.fromkeys(("num_highlights", "relation", "num_words", "keywords", "keyword", "language"))
LEAST, LESS = {"relation": "at least"}, {"relation": "less than"}
CASES: list[tuple[str, dict[str, Any], str, str]] = [
    ("keywords:existence", {"keywords": ["friend"]}, "My friends", "My mother"),
    ("keywords:frequency", {"keyword": "flow", "frequency": 2, **LEAST}, "Flow and flowing", "flow"),
    ("keywords:forbidden_words", {"forbidden_words": ["fire"]}, "firefly", "Fire!"),
    ("keywords:letter_frequency", {"letter": "E", "let_frequency": 2.0, "let_relation": "less than"}, "e", "Ee"),
    ("language:response_language", {"language": "de"}, "Das ist nicht der Baum.", "This is not the tree."),
    (
        "length_constraints:number_sentences",
        {"num_sentences": 3, **LESS},
        "Dr. Who came. He left.",
        "Come in. Sit down. Eat.",
    ),
    ("length_constraints:number_paragraphs", {"num_paragraphs": 2}, "a\n\n**b**\n\n***\n\nc", "a\n\nb"),
    ("length_constraints:number_words", {"num_words": 3, **LESS}, "I don't", "a b c"),
    (
        "length_constraints:nth_paragraph_first_word",
        {"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "hello"},
        "a\n\n\n**Hello**, you",
        "a\n\nhellos",
    ),
    ("detectable_content:number_placeholders", {"num_placeholders": 2}, "[a] [b c]", "[a]"),
    ("detectable_content:postscript", {"postscript_marker": "P.P.S"}, "a\n\nP.P.S. b", "a\n\nP.S. b"),
    ("detectable_format:number_bullet_lists", {"num_bullets": 2}, "* a\n* b\n\n---", "* a"),
    ("detectable_format:constrained_response", {}, "My answer is yes.", "Yes."),
    ("detectable_format:number_highlighted_sections", {"num_highlights": 2}, "* *a b*: **c**", "* a\n* 2 * 3"),
    ("detectable_format:multiple_sections", {"section_spliter": "Day", "num_sections": 2}, "## Day 1\nDay 2", "Day 1"),
    ("detectable_format:json_format", {}, '```json\n{"a": 1}\n```', "a: 1"),
    ("detectable_format:title", {}, "<<a>>", "# a"),
    ("combination:two_responses", {}, "a\n******\nb", "a\n******\na"),
    ("combination:repeat_prompt", {"prompt_to_repeat": "Write a  poem."}, "Write a poem.\n\nRoses", "Roses"),
    ("startend:end_checker", {"end_phrase": "Any questions?"}, 'So. any questions?"', "Any questions? No."),
    ("startend:quotation", {}, '"a"', 'a "b"'),
    (
        "change_case:capital_word_frequency",
        {"capital_frequency": 2, "capital_relation": "at least"},
        "WOW (NASA!)",
        "Wow NASA",
    ),
    ("change_case:english_capital", {}, "THIS IS IT.", "DAS IST ES."),
    ("change_case:english_lowercase", {}, "this is it.", "This is it."),
    ("punctuation:no_comma", {}, "a b", "a, b"),
]


def score(field: str, response: str, **row: Any) -> float:
    return float(constraints(field=field)(prompt="", response=response, answer="", row=row))


def test_every_published_instruction_has_a_case() -> None:
    assert [name for name, *_ in CASES] == list(INSTRUCTIONS)


@pytest.mark.parametrize(("name", "arguments", "good", "bad"), CASES, ids=[name for name, *_ in CASES])
def test_rows_of_ifeval(name: str, arguments: dict[str, Any], good: str, bad: str) -> None:
    row = {"instruction_id_list": [name, "punctuation:no_comma"], "kwargs": [{**NULLS, **arguments}, {**NULLS}]}
    expected = 0.5 * ("," not in good) + 0.5
    assert score("instruction_id_list", good, **row) == expected
    assert score("instruction_id_list", bad, **row) < 1.0


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("pt", "Esta é uma casa e não é muito grande para os meninos."),
        ("es", "Esta es una casa y no es muy grande para los niños."),
        ("bg", "Това е една къща и не е голяма"),
        ("uk", "Це будинок, і він не дуже великий."),
        ("fa", "این یک خانه است و بزرگ نیست"),
        ("mr", "हे एक घर आहे आणि ते मोठे नाही"),
        ("sw", "Hii ni nyumba na sio kubwa sana kwa watu wa kijiji."),
        ("ja", "これは家です"),
    ],
)
def test_languages_of_one_script_are_distinguished(code: str, text: str) -> None:
    for language in ("pt", "es", "bg", "uk", "fa", "mr", "sw", "ja"):
        row = {"instruction_id_list": ["language:response_language"], "kwargs": [{"language": language}]}
        assert score("instruction_id_list", text, **row) == float(language == code)


def test_instructions_may_stand_in_one_field_as_text() -> None:
    listed = "[{'instruction_id': ['change_case:english_lowercase', 'punctuation:no_comma'], 'kwargs': [None, {}]}]"
    mapping = json.dumps({"instruction_id_list": ["punctuation:no_comma"], "kwargs": [{"keyword": None}]})
    assert score("ground_truth", "this, is it", ground_truth=listed) == 0.5
    assert score("ground_truth", "this is it", ground_truth=mapping) == 1.0


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"names": ["punctuation:no_commas"], "kwargs": [{}]}, "did you mean 'punctuation:no_comma'"),
        ({"names": ["length_constraints:number_words"], "kwargs": [{"num_words": 3}]}, "missing .* 'relation'"),
        (
            {"names": ["length_constraints:number_words"], "kwargs": [{"num_words": 3, "relation": "leest"}]},
            "unknown relation 'leest'",
        ),
        ({"names": ["punctuation:no_comma"]}, "as many kwargs as instructions"),
        ({"names": "no comma"}, "neither a mapping nor JSON"),
    ],
)
def test_mistakes_in_rows_are_named(row: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        score("names", "text", **row)
