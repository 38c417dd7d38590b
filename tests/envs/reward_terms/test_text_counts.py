"""Counts and forms of texts as people and models write them."""

from __future__ import annotations

import pytest
from rlinf_envs.reward_terms.text_counts import bullets, occurrences, paragraphs, sentences, words
from rlinf_envs.reward_terms.text_forms import ends_with, has_postscript, has_title, is_json, is_quoted, placeholders


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
        ("To buy:\n- eggs\n- milk", 1),
        ("it is late. we go home.", 2),
        ("Wait... what is it?! Nothing.", 2),
        ("**Do it.** Now!", 2),
        ("你好。再见。", 2),
        ("No. 5 is alive", 1),
        ("It ends.\n\nP.S. It began", 2),
        ("*** ... !", 0),
    ],
)
def test_sentences(text: str, count: int) -> None:
    assert sentences(text) == count


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
    assert ends_with('"Any questions?"**', "Any questions?")
    assert not ends_with("Any questions? No.", "Any questions?")
