"""Counts and forms of texts as people and models write them."""

from __future__ import annotations

import pytest
from rlinf_envs.reward_terms.text_counts import (
    bullets,
    divided,
    folded_words,
    occurrences,
    paragraphs,
    sentence_list,
    sentences,
    word_list,
    words,
)
from rlinf_envs.reward_terms.text_forms import (
    are_hyphenated,
    are_wrapped,
    ends_with,
    has_palindrome,
    has_postscript,
    has_title,
    is_json,
    is_quoted,
    placeholders,
)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("I don’t see", 3),
        ("It costs 3.5 dollars", 4),
        ("about 1,000 people", 3),
        ("We met at 5:30 yesterday", 5),
        ("one — two—three", 3),
        ("- **bold** _words_", 2),
        ("AT&T called the U.S. office", 5),
        ("one,two,three", 3),
        ("你好 world", 3),
        ("It rains.-We stay!-So U.S.-based", 6),
        ("", 0),
    ],
)
def test_words(text: str, count: int) -> None:
    assert words(text) == count


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("Dr. Smith arrived. He sat down.", 2),
        ('She wrote "Go." Then she left.', 2),
        ('"Go!" she wrote.', 1),
        ("The U.S. economy grew.", 1),
        ("It costs 3.5 dollars, e.g. for bread.", 1),
        ("He woke at 5 a.m. and left. She slept.", 2),
        ("J. K. Rowling wrote it.", 1),
        ("First one. Second without mark", 2),
        ("Hello there", 1),
        ("1. Eat well.\n2. Sleep.\n3. Run.", 3),
        ("# On rain\n\nIt rains.", 1),
        ("# On rain\nIt rains", 1),
        ("To buy:\n- eggs\n- milk", 1),
        ("it is late. we go home.", 2),
        ("Wait... what is it?! Nothing.", 2),
        ("**Do it.** Now!", 2),
        ("你好。再见。", 2),
        ("No. 5 is alive", 1),
        ("It ends.\n\nP.S. It began", 2),
        ("It rains.-we stay!-“So be it.”-Now", 4),
        ("U.S.-China talks, a Dr.-Smith quote, a Ph.D.-level test", 1),
        ("[It] [rains.] [We] [stay.] [a.m.] [is] [it]", 3),
        ("<<It rains.>> <<We stay>>", 2),
        ("*** ... !", 0),
    ],
)
def test_sentences(text: str, count: int) -> None:
    assert sentences(text) == count


def test_lists_have_words_and_sentences_without_marks() -> None:
    assert word_list("**Hello**, (dear) U.S. friends — 5% of 你们! हिन्दी") == [
        *("Hello", "dear", "U.S", "friends", "5", "of", "你", "们", "हिन्दी")
    ]
    assert folded_words("DON’T _stop_") == ["don't", "stop"]
    assert sentence_list("# On rain\nIt rains.\n\n1. Mr. Fox left!\n2. Bye") == ["It rains.", "Mr. Fox left!"]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("a\n***\nb", ["a", "b"]),
        ("a\n\n* * *\n\nb\n* * *\n", ["a", "b"]),
        ("a *** b", ["a", "b"]),
        ("a\n***\n***\nb", ["a", "", "b"]),
        ("***a*** b\n* c\n* d\n---\n****", ["***a*** b\n* c\n* d\n---\n****"]),
    ],
)
def test_parts_between_dividers(text: str, parts: list[str]) -> None:
    assert divided(text) == parts


def test_paragraphs_and_bullets() -> None:
    assert paragraphs("a\r\n\r\nb\n***\nc\n\n- - -\n\nd") == ["a", "b", "c", "d"]
    assert bullets("* **A**: x\n  - b\n+ c\n• d\n---\n* * *\n**bold**\n-5 and a - b") == 4


def test_occurrences() -> None:
    assert occurrences("I don’t, _don't_", "don't") == 2
    assert occurrences("Machine\nlearning", "machine learning") == 1
    assert occurrences("I use C++ and C", "C++") == 1
    assert occurrences("今天天气很好", "天气") == 1
    assert (occurrences("friends", "friend"), occurrences("friends", "friend", whole_words=False)) == (0, 1)


@pytest.mark.parametrize(
    "text", ['{"a": 1}', "[1]", '```json\n{"a": 1}\n```', '```JSON {"a": 1}```', '~~~\n{"a": 1}\n~~~']
)
def test_json(text: str) -> None:
    assert is_json(text)


@pytest.mark.parametrize(
    "text", ['"text"', "5", "null", "{'a': 1}", 'Here:\n```json\n{"a": 1}\n```', '```js\n{"a": 1}\n```']
)
def test_no_json(text: str) -> None:
    assert not is_json(text)


def test_forms() -> None:
    assert is_quoted('"He wrote "hi" to me"')
    assert is_quoted("“curly”")
    assert not is_quoted('"')
    assert has_title("**<<Joy>>**")
    assert not has_title("<< >>")
    assert placeholders("[name], [x] done, [ ] open, [a link](http://x), a[0], [1], [your town]") == 2
    assert has_postscript("a\n**P.S.** b", "P.S.")
    assert has_postscript("a\np. p. s. b", "P.P.S")
    assert not has_postscript("a\nP.P.S. b", "P.S.")
    assert not has_postscript("a\nP.S.\n", "P.S.")
    assert ends_with('"Any questions?"**', "Any questions?")
    assert not ends_with("Any questions? No.", "Any questions?")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Was it a car or a cat I saw?", True),
        ("A **race-car** won", True),
        ("Level up", True),
        ("A, I, a: hmm, www, 1001", False),
        ("The quick brown fox jumps over the lazy dog. It then sleeps in its house near the river.", False),
    ],
)
def test_palindromes(text: str, expected: bool) -> None:
    assert has_palindrome(text) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<<The rain>>, <<in Spain>>\n\n<<falls today>>!", True),
        ("<<The rain>> <<falls>>", True),
        ("<<The rain>> falls", True),
        ("<<The rain>> <<in>> <<Spain falls>>", False),
        ("Here: <<The rain>>", False),
        ("<<The rain>> falls on us", False),
        ("The rain", False),
        ("<< >>", False),
    ],
)
def test_pairs_of_words_are_wrapped(text: str, expected: bool) -> None:
    assert are_wrapped(text, "<<", ">>", size=2) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('"It rains."-"It snows!"-I stay', True),
        ("It costs 3.5 dollars at example.com, e.g. in the U.S. market.-I buy it.", True),
        ("It rains.It snows.", False),
        ("It rains.—It snows.", False),
        ("It rains.\n-It snows.", False),
        ("It rains.-It snows.\n\nI stay.", False),
    ],
)
def test_sentences_are_hyphenated(text: str, expected: bool) -> None:
    assert are_hyphenated(text) is expected
