"""Rows of RLVR-IFeval: functions with their arguments, as JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest
from rlinf_envs.errors import SettingError
from rlinf_envs.reward_terms.constraints import constraints
from rlinf_envs.reward_terms.function_constraints import FUNCTIONS

NAMES = (
    "N quantifier end_phrase keyword_list word forbidden_words letter i first_word postscript_marker options "
    "section_splitter original_prompt"
)
NULLS = dict.fromkeys(NAMES.split())
TEN = "one two three four five six seven eight nine ten"
CASES: list[tuple[str, dict[str, Any], tuple[str, str], tuple[str, str]]] = [
    (
        "verify_keywords",
        {"keyword_list": ["sky", "blue"]},
        ("The **Sky** is blue.\n", "- SKY\n- Blue"),
        ("The sky is grey.", "A blue sea"),
    ),
    (
        "verify_keyword_frequency",
        {"word": "art", "N": 2},
        ("Art is long; **art** is life.", "Art’s aim is art. We party."),
        ("Art is long.", "Art, art and art!"),
    ),
    (
        "validate_forbidden_words",
        {"forbidden_words": ["cat", "dog"]},
        ("We concatenate lists.", "<think>cat or dog?</think>A horse."),
        ("The **Cat** sat.", "dogs and a dog"),
    ),
    (
        "verify_letter_frequency",
        {"letter": "a", "N": 3},
        ("An apple tart", "Banana\n"),
        ("An apple", "A banana tart"),
    ),
    (
        "validate_response_language",
        {"language": "es"},
        ("El sol es una estrella que está en el centro.", "**Hola**, no sé qué es lo que dice.\n"),
        ("The sun is a star in the centre of it.", "O sol é uma estrela que não está em casa."),
    ),
    (
        "verify_paragraph_count",
        {"N": 3},
        ("One.\n\n* * *\n\nTwo with ***bold*** words.\n* * *\nThree.\n", "One.\n***\nTwo.\n***\nThree."),
        ("One.\n\nTwo.\n\nThree.", "One.\n* * *\n* * *\nThree."),
    ),
    (
        "validate_word_constraint",
        {"N": 10, "quantifier": "around"},
        (f"{TEN} eleven", "One — two, three. **four** five six seven eight nine\n"),
        ("one two three", f"{TEN} eleven twelve"),
    ),
    (
        "verify_sentence_constraint",
        {"N": 2, "quantifier": "at most"},
        ("Dr. Smith came at 5 p.m. He sat.", "# On rain\n\nIt rains!"),
        ("It rains. It pours. I stay.", "1. Eat.\n2. Sleep.\n3. Run."),
    ),
    (
        "validate_paragraphs",
        {"N": 2, "i": 2, "first_word": "however"},
        ("It rains.\n\nHowever, I go.", "It rains.\n\n\n**However** I go.\n"),
        ("It rains.\n\nBut I go.", "However, it rains.\n\nI go.\n\nHowever so."),
    ),
    (
        "verify_postscript",
        {"postscript_marker": "P.S."},
        ("Bye.\n\nP.S. Call me.", "Bye.\n**P. S.** call me\n"),
        ("Bye.\n\nCall me.", "Bye.\n\nP.S.\n"),
    ),
    (
        "validate_placeholders",
        {"N": 2},
        ("Dear [name], visit [address].", "**[Name]**\n[Your town]\n"),
        ("Dear [name]", "- [x] done\n- [ ] open"),
    ),
    (
        "verify_bullet_points",
        {"N": 2},
        ("Buy:\n* eggs\n* milk\n", "- **Eggs**: six\n- Milk\n\n---\nDone"),
        ("* eggs", "1. eggs\n2. milk"),
    ),
    ("validate_title", {}, ("<<On Rain>>\nIt rains.", "# <<Rain>>\n"), ("# On Rain\nIt rains.", "< Rain >")),
    (
        "validate_choice",
        {"options": ["yes", "no", "maybe"]},
        ("Yes.", "My answer is **no**\n"),
        ("Nothing is known.", "Yesterday it was."),
    ),
    (
        "validate_highlighted_sections",
        {"N": 2},
        ("*Rain* falls and **snow** too.", "* **Rain**: wet\n* **Snow**: cold\n"),
        ("*Rain* falls.", "* rain\n* snow"),
    ),
    (
        "validate_sections",
        {"N": 2, "section_splitter": "Section"},
        ("Section 1\nRain.\nSECTION 2: Snow.", "## Section I\nRain.\n\n**Section II**\nSnow."),
        ("Section 1\nRain.", "This section 1 of 2 and section 2 of 2"),
    ),
    (
        "validate_json_format",
        {},
        ('{"a": [1, 2]}', '```json\n{"a": "b"}\n```\n'),
        ("{a: 1}", 'Here it is: {"a": 1}'),
    ),
    (
        "validate_repeat_prompt",
        {"original_prompt": "Write a poem\nabout rain."},
        ("Write a poem about rain.\n\nRain falls.", "write a poem\nabout rain. Rain falls."),
        ("Rain falls.", "Sure! Write a poem about rain. Rain falls."),
    ),
    (
        "validate_two_responses",
        {},
        ("It rains.\n******\nIt snows.", "******\nIt rains.\n******\nIt snows.\n******\n"),
        ("It rains.\n******\nIt rains.", "It rains.\n***\nIt snows."),
    ),
    (
        "validate_uppercase",
        {},
        ("THIS IS THE RAIN OF 2020!", "<think>in capitals</think>IT IS WHAT **IT** IS\n"),
        ("THIS IS the RAIN.", "DAS IST NICHT DER REGEN"),
    ),
    (
        "validate_lowercase",
        {},
        ("this is the rain of 2020.\n", "it is what *it* is!"),
        ("This is the rain.", "das ist nicht der regen"),
    ),
    (
        "validate_frequency_capital_words",
        {"N": 2, "quantifier": "at least"},
        ("STOP and LISTEN.", "**NASA** met (ESA)\n"),
        ("Stop and LISTEN.", "stop and listen"),
    ),
    (
        "validate_end",
        {"end_phrase": "Any other questions?"},
        ("It rains. Any other questions?\n", "It rains. **Any other questions?**"),
        ("Any other questions? No.", "It rains. Other questions?"),
    ),
    ("validate_quotation", {}, ('"It rains."', '"It rains."\n'), ('"It" rains.', "It rains.")),
    ("validate_no_commas", {}, ("It rains and snows.", "<think>so, no</think>Fine."), ("It rains, too.", "是，的")),
]


def score(response: str, ground_truth: Any) -> float:
    row = {"ground_truth": ground_truth}
    return float(constraints(field="ground_truth")(prompt="", response=response, answer="", row=row))


def test_every_function_has_a_case() -> None:
    assert [name for name, *_ in CASES] == list(FUNCTIONS)


@pytest.mark.parametrize(("name", "arguments", "kept", "broken"), CASES, ids=[name for name, *_ in CASES])
def test_a_function_is_kept_or_not(
    name: str, arguments: dict[str, Any], kept: tuple[str, str], broken: tuple[str, str]
) -> None:
    row = json.dumps({"func_name": name, **NULLS, **arguments})
    assert [score(text, row) for text in (*kept, *broken)] == [1.0, 1.0, 0.0, 0.0]


def test_options_may_stand_in_one_text() -> None:
    row = {"func_name": "validate_choice", "options": "yes, no or maybe"}
    assert [score(text, row) for text in ("Maybe!", "Yes.", "or")] == [1.0, 1.0, 0.0]


@pytest.mark.parametrize(("splitter", "text"), [("---", "---\nRain\n---\nSnow"), ("###", "### Rain\na\n### Snow\nb")])
def test_a_mark_without_letters_begins_a_section_alone(splitter: str, text: str) -> None:
    row = {"func_name": "validate_sections", "N": 2, "section_splitter": splitter}
    assert [score(each, row) for each in (text, text.partition("Snow")[0][:-5])] == [1.0, 0.0]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"func_name": "validate_lowercas"}, "unknown function 'validate_lowercas'; did you mean 'validate_lowercase'"),
        ({"func_name": "verify_bullet_points"}, "verify_bullet_points: missing .* 'N'"),
        (
            {"func_name": "validate_word_constraint", "N": 9, "quantifier": "about"},
            "^reward.constraints: unknown relation 'about'.*around",
        ),
    ],
)
def test_mistakes_are_named(row: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        score("text", json.dumps(row))
