from __future__ import annotations

import json
import random
import time

import pytest

from rlinf.base.json_text import MAX_DEPTH, TooDeep, parse_json


@pytest.mark.parametrize("deep", ["[" * 50_000, '{"a":' * 50_000, '[{"a":' * 300 + "1" + "}]" * 300])
def test_what_python_would_give_up_on_is_refused_before(deep: str) -> None:
    for text in (deep, deep.encode()):
        with pytest.raises(TooDeep, match="nested too deeply"):
            parse_json(text)


@pytest.mark.parametrize(
    "value",
    [
        "[" * 1000,
        ['"[', '\\"[', "\\"] * 300,
        [["[{"] * 5] * 300,
        [[[]]] * 400,
        {"größe": ["\ud800["] * 300},
    ],
)
def test_brackets_in_texts_and_in_siblings_do_not_nest(value: object) -> None:
    text = json.dumps(value)
    assert parse_json(text) == value
    assert parse_json(text.encode()) == value


def test_the_limit_itself_is_read() -> None:
    text = "[" * MAX_DEPTH + "]" * MAX_DEPTH
    assert json.dumps(parse_json(text)) == text
    with pytest.raises(TooDeep):
        parse_json(f"[{text}]")


def test_what_is_no_json_is_a_value_error_however_long() -> None:
    drawn = random.Random(0)
    began = time.process_time()
    for letters in ('"\\[', "[{}]", '\\"', "[]", '"['):
        text = "".join(drawn.choices(letters, k=1 << 20)) + "x"
        with pytest.raises(ValueError, match=r"line 1|nested"):
            parse_json(text)
    assert time.process_time() - began < 5.0


def test_an_object_with_a_key_twice_names_it() -> None:
    parsed = parse_json('{"a": 1, "b": {"c": 1, "c": 2}, "a": 3}')
    assert parsed == {"a": 3, "b": {"c": 2}}
    assert (parsed.names, parsed["b"].names) == (["a"], ["c"])
    assert type(parse_json('{"a": {"b": 1}}')) is dict
