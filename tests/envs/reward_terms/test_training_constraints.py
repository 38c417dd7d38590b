"""Rows of IF-RLVR: lists with one mapping of names and arguments, as Python writes them."""

from __future__ import annotations

from typing import Any

import pytest
from rlinf_envs.errors import SettingError
from rlinf_envs.reward_terms.constraints import constraints
from rlinf_envs.reward_terms.training_constraints import TRAINING_INSTRUCTIONS

PROMPT = {"prompt_to_repeat": "Write a poem\nabout rain."}
CASES: list[tuple[str, dict[str, Any] | None, tuple[str, str], tuple[str, str]]] = [
    (
        "keywords:word_once",
        {"keyword": "art"},
        ("The **Art** of a party.\n", "<think>art, art</think>Art."),
        ("Art is art.", "The party starts."),
    ),
    (
        "keywords:word_count_different_numbers",
        {"keyword": "rain", "frequency": 2, "relation": "less than"},
        ("Rain, rain, go away!", "The *rain* stops rain."),
        ("Rain, go away!", "Rain, rain and rain."),
    ),
    (
        "keywords:exclude_word_harder",
        {"keyword": "rain"},
        ("A rainy day", "Training is fun."),
        ("No Rain.", "It is **rain**, again."),
    ),
    (
        "keywords:palindrome",
        None,
        ("My **Level** rose.", 'I wrote "A man, a plan, a canal: Panama!"\n'),
        ("I saw a dog.", "In 2002 it rained."),
    ),
    (
        "keywords:keyword_specific_position",
        {"keyword": ["computer"], "n": 2, "m": 3},
        ("Dr. Who came. He had, **computer** in hand.", "# It\n\nOne.\n\nMy new Computer!\n"),
        ("My new computer.", "One. My computer is new."),
    ),
    (
        "keywords:start_end",
        None,
        ("Rain is what I call rain\n", "**Rain** is **rain**"),
        ("Rain is rain.", "Rain is snow"),
    ),
    (
        "keywords:no_adjacent_consecutive",
        None,
        ("The sun warms a dog.", "Big apple, eleven pears"),
        ("A big dog", "I saw **cats** - dogs too"),
    ),
    (
        "letters:letter_counting",
        {"N": 5, "relation": "less than"},
        ("It is", "**No.** 12345!\n"),
        ("It rains", "- a\n- b\n- c\n- d\n- e"),
    ),
    (
        "letters:letter_counting2",
        {"letter": "e", "let_frequency": 3, "let_relation": "at least"},
        ("Eleven", "EVERY tree"),
        ("Every", "rain and snow"),
    ),
    (
        "paragraphs:paragraphs",
        {},
        ("It rains.\n\n***\n\nIt **snows**.\n", "***\nIt rains.\n* * *\nIt snows.\n***"),
        ("It rains.\n\nIt snows.", "One.\n***\nTwo.\n***\nThree."),
    ),
    (
        "paragraphs:paragraphs2",
        {},
        ("It rains.\nA lot.\n\nIt snows.\n", "It rains.\n \n\nIt snows."),
        ("It rains.\nIt snows.", "One.\n\nTwo.\n\nThree."),
    ),
    (
        "first_word:first_word_sent",
        {"first_word": ["it"]},
        ('It rains. "It snows," I think. **It** ends.\n', "# Rain\nIt rains.\n\n- It pours."),
        ("It rains. Then it snows.", "It rains. Its end is near."),
    ),
    (
        "first_word:first_word_answer",
        {"first_word": "however"},
        ("**However**, it rains.", "\nHOWEVER it rains. And snows."),
        ("It rains, however.", "Howevermuch it rains."),
    ),
    (
        "last_word:last_word_sent",
        {"last_word": ["rain"]},
        ("I like rain. Do you like **rain**?\n", 'She wrote "Rain!" It is rain'),
        ("I like rain. You like snow.", "It is a train."),
    ),
    (
        "last_word:last_word_answer",
        {"last_word": "brief"},
        ("I will be *brief*.\n", "Be BRIEF!”"),
        ("I will be brief, dear.", "It is briefly"),
    ),
    (
        "detectable_format:bigram_wrapping",
        None,
        ("<<I am>> <<at home>> <<with my>> <<cute dog>>.", "<<It rains>>, <<and I>>\n<<stay>>\n"),
        ("<<I am>> at home", "<<I am at>> <<home today>>"),
    ),
    (
        "detectable_format:square_brackets",
        None,
        ("[It] [rains] [today.]\n", "1. [It’s] [raining],\n2. [U.S.] [news]!"),
        ("[It] rains [today].", "[It rains] [today]"),
    ),
    (
        "detectable_format:sentence_hyphens",
        None,
        ("It rains.-It snows!-I stay.\n", "A well-known fact.-Dr. Smith wrote it."),
        ("It rains. It snows.", "It rains. - It snows."),
    ),
    ("punctuation:punctuation_dot", None, ("It rains!\n", "It rains; I stay"), ("It rains.", "It costs 3.5 dollars")),
    ("punctuation:punctuation_exclamation", None, ("It rains.", "Does it?\n"), ("Rain!", "a != b")),
    (
        "copy:repeat_phrase",
        {"phrase": "Don't judge a book by cover", "small_n": 2},
        (
            "1. Don't judge a film by cover\n2. Don't judge a person by cover",
            "**Don’t judge a song by cover.** don't weigh a book by cover!\n",
        ),
        (
            "Don't judge a film by cover",
            "Don't judge a book by cover. Don't judge a film by cover. Don't judge a song by cover.",
        ),
    ),
    (
        "copy:copy",
        PROMPT,
        ("Write a poem about rain.\n", "write a poem\n\nabout rain."),
        ("Rain falls.", "Write a poem about rain. Rain falls."),
    ),
    (
        "copy:copying_simple",
        PROMPT,
        ("Write a poem\nabout rain.", "<think>copy it</think>\nWrite a poem about rain."),
        ("Sure: write a poem about rain.", "Write a poem about snow."),
    ),
    (
        "copy:copying_multiple",
        {**PROMPT, "N": 2},
        (
            "Write a poem about rain.\n******\nWrite a poem about rain.\n",
            "Write a poem\nabout rain. ****** write a poem\nabout rain.\n******",
        ),
        ("Write a poem about rain.", "Write a poem about rain.\n***\nWrite a poem about rain."),
    ),
    (
        "count:lowercase_counting",
        {"N": 2},
        ("IT rains AND don't STOP.\n", "RAIN"),
        ("It rains and snows today.", "**it** is *so*"),
    ),
    (
        "count:counting_composition",
        {"n_sent": 2, "n_words": 3},
        (
            "It rains today. I stay home.\n* * *\nIt snows now. I go out.\n* * *\nDr. Who came. He is here.\n",
            "It rains today! I stay home.\n\n***\n\nIt snows now? I go out.\n\n***\n\nWe don't mind. I **am** glad.",
        ),
        (
            "It rains today. I stay home.\n\nIt snows now. I go out.\n\nWe do mind. I am glad.",
            "It rains. I stay home.\n* * *\nIt snows now. I go out.\n* * *\nWe do mind. I am glad.",
        ),
    ),
    (
        "count:count_unique",
        None,
        ("It rains. We stay, they go.", "Rain; rainy days!\n"),
        ("It rains and it snows.", "Don't! I don’t."),
    ),
    (
        "count:count_increment_word",
        {"keyword1": "sun", "keyword2": "rain"},
        ("Rain, sun and **rain**.", "The Sun on Sunday: RAIN or rain?"),
        ("Sun, rain and rain and rain", "Sun and rain"),
    ),
    (
        "new:copy_span_idx",
        {"prompt_to_repeat": "Write a poem about rain.", "n_start": 8, "n_end": 11},
        ("poem\n", "Poe"),
        ("a poem", "Write a poem about rain."),
    ),
]


def score(response: str, ground_truth: Any) -> float:
    row = {"ground_truth": ground_truth}
    return float(constraints(field="ground_truth")(prompt="", response=response, answer="", row=row))


def test_every_instruction_has_a_case() -> None:
    assert {name for name, *_ in CASES} == set(TRAINING_INSTRUCTIONS)


@pytest.mark.parametrize(("name", "arguments", "kept", "broken"), CASES, ids=[name for name, *_ in CASES])
def test_an_instruction_is_kept_or_not(
    name: str, arguments: dict[str, Any] | None, kept: tuple[str, str], broken: tuple[str, str]
) -> None:
    row = str([{"instruction_id": [name], "kwargs": [arguments]}])
    assert [score(text, row) for text in (*kept, *broken)] == [1.0, 1.0, 0.0, 0.0]


def test_instructions_of_both_papers_count_alike() -> None:
    ids = ["detectable_format:title", "keywords:word_once", "punctuation:no_comma", "keywords:forbidden_words"]
    row = str([{"instruction_id": ids, "kwargs": [None, {"keyword": "rain"}, {}, {"forbidden_words": ["snow"]}]}])
    assert score("<<Rain>>\nThe rain, and snow", row) == 0.25


@pytest.mark.parametrize(
    "row",
    [
        ["[{'instruction_id': ['keywords:word_once'], 'kwargs': [{'keyword': ['rain']}]}]"],
        {"instruction_id": ["keywords:word_once"], "kwargs": ['{"keyword": "rain", "N": null}']},
        [{"instruction_id_list": ["keywords:existence"], "kwargs": [{"keywords": "a rain"}]}],
    ],
)
def test_text_and_lists_of_one_are_read(row: Any) -> None:
    assert [score(response, row) for response in ("It rains, a rain", "It rains")] == [1.0, 0.0]


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("keywords:word_onc", {}, "unknown instruction 'keywords:word_onc'; did you mean 'keywords:word_once'"),
        ("keywords:word_once", {}, "keywords:word_once: missing .* 'keyword' .it has none"),
        ("keywords:word_once", {"keyword": "a", "N": 3}, "keywords:word_once: .* unexpected .* 'N' .it has keyword, N"),
        ("keywords:word_once", 3, "keywords:word_once needs a mapping of arguments, got 3"),
        ("count:lowercase_counting", {"N": "few"}, "count:lowercase_counting: .*'few'"),
    ],
)
def test_mistakes_are_named(name: str, arguments: Any, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        score("text", str([{"instruction_id": [name], "kwargs": [arguments]}]))
