"""Datasets with every fault: refused with file and line, left out and counted on request, or taken with a warning."""

import json
import time
import warnings
from pathlib import Path

import gymnasium
import pytest
from rlinf_envs.errors import DatasetError
from rlinf_envs.math.env import MathEnv

from rlinf.base.errors import is_user_error
from rlinf.models.tokenizer import train_tokenizer

GOOD = b'{"question": "1+1", "answer": "2"}\n'
BROKEN: dict[str, tuple[bytes, str]] = {
    "brackets": (b"[" * 200_000, "nested too deeply"),
    "objects": (b'{"a":' * 100_000, "nested too deeply"),
    "a long integer": (b'{"question": "q", "answer": %s}' % (b"1" * 5001), "4300 digits"),
    "a bare number": (b"42", "must be an object, got int"),
    "null": (b"null", "must be an object, got NoneType"),
    "Latin-1": ('{"question": "größe", "answer": "1"}'.encode("latin-1"), "no text in UTF-8"),
    "a lone surrogate": (rb'{"question": "a\ud800b", "answer": "1"}', r"question .* half a character \(\\ud800"),
    "a lone surrogate in the answer": (rb'{"question": "a", "answer": "\udc00"}', "answer .* half a character"),
    "a lone surrogate in the solution": (
        rb'{"question": "a", "answer": "1", "solution": "\udc00"}',
        "solution has half",
    ),
    "a long row": (b'{"question": "%s", "answer": "1"}' % (b"x" * 10_000_000), "over 8 MiB"),
    "a long question": (b'{"question": "%s", "answer": "1"}' % (b"x" * 2_000_000), "2,000,000 characters"),
    "a long answer": (b'{"question": "q", "answer": "%s"}' % (b"x" * 2_000_000), "2,000,000 characters"),
    "half a row": (b'{"question": "q", "ans', "no valid JSON"),
    "no value": (b'{"question": "q", "answer": ', "no valid JSON: Expecting value at column 28"),
    "an answer of null": (b'{"question": "q", "answer": null}', "the answer field 'answer' is null"),
    "names of its own": (b'{"frage": "q", "loesung": "1"}', "env.kwargs.question_field names another"),
    "null bytes": (b"\x00\x00", "no valid JSON"),
    "a list as answer": (b'{"question": "q", "answer": [1, 2]}', "the answer field 'answer' has 2 entries"),
    "no answer": (b'{"question": "q"}', "no answer field"),
}


def make(path: Path, **settings: object) -> MathEnv:
    env = gymnasium.make_vec("rlinf_envs:rlinf/Math-v0", num_envs=1, path=str(path), **settings)
    assert isinstance(env, MathEnv)
    return env


@pytest.mark.parametrize("fault", BROKEN)
def test_a_broken_row_is_refused_by_file_and_line_or_left_out_and_counted(tmp_path: Path, fault: str) -> None:
    line, words = BROKEN[fault]
    path = tmp_path / "rows.jsonl"
    path.write_bytes(GOOD + line + b"\n" + GOOD)
    began = time.process_time()
    with pytest.raises(DatasetError, match=rf"rows\.jsonl:2: .*{words}") as caught:
        make(path)
    assert is_user_error(caught.value)
    assert len(str(caught.value)) < 1000
    env = make(path, on_bad_row="skip")
    assert (env.num_tasks, env.skipped_rows) == (2, 1)
    assert time.process_time() - began < 2.0


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"42", "a dataset must be a list of objects, or one object per line; the file holds int"),
        (b"null", "the file holds null"),
        (b'"text"', "the file holds str"),
        (b"[" * 200_000, r"rows\.json:1: .*nested too deeply"),
        (b'[\n{"question": "q", "answer": %s}]' % (b"1" * 5001), r"rows\.json:1: .*4300 digits"),
        ('[\n{"question": "größe", "answer": "1"}]'.encode("latin-1"), r"rows\.json:2: no text in UTF-8"),
        (b'[{"question": "q", "answer": "1"},\n{"question"]', r"rows\.json:2: no valid JSON"),
        (rb'[{"question": "a\ud800b", "answer": "1"}]', r"rows\.json\[0\]: .*half a character"),
        (b"[1, 2]", r"rows\.json\[0\]: a row must be an object, got int"),
        (b"", r"rows\.json:1: no valid JSON"),
    ],
)
def test_a_broken_json_file_is_refused_by_name(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "rows.json"
    path.write_bytes(content)
    with pytest.raises(DatasetError, match=words):
        make(path)


@pytest.mark.parametrize("suffix", ["jsonl", "json", "parquet"])
@pytest.mark.parametrize("content", [b"", b"\n\n\n", b"\x1f\x8b garbage", b"\xff\xfe1\x00"])
def test_no_file_of_any_kind_ends_in_a_traceback(tmp_path: Path, suffix: str, content: bytes) -> None:
    path = tmp_path / f"rows.{suffix}"
    path.write_bytes(content)
    with pytest.raises(DatasetError, match="rows"):
        make(path)


def test_odd_rows_are_taken_with_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    rows = [("a", "2"), ("b", "1"), ("a", "3"), ("a", "2")]
    lines = [json.dumps({"question": question, "answer": answer}) for question, answer in rows]
    lines += [f'{{"question": "{value}", "answer": {value}}}' for value in ("NaN", "Infinity", "-Infinity", "1e999")]
    path.write_text("\n".join(lines))
    with pytest.warns(
        UserWarning, match=r"5 odd rows.*\n.*rows\.jsonl:3: the question of .*rows\.jsonl:1 with another"
    ):
        env = make(path)
    assert env.num_tasks == 8
    assert [doubt.rpartition(": ")[2] for doubt in env.doubts[1:]] == [
        f"the answer is the number {value}" for value in ("nan", "inf", "-inf", "inf")
    ]
    path.write_text(lines[0] + "\n" + lines[3])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make(path)


@pytest.mark.parametrize("unit", ["x", "word ", "ab c. "])
def test_a_tokenizer_is_trained_on_a_megabyte_in_seconds(unit: str) -> None:
    began = time.process_time()
    tokenizer = train_tokenizer([unit * (1_000_000 // len(unit))], vocab_size=400)
    assert time.process_time() - began < 10
    text = unit * 20
    assert tokenizer.decode(tokenizer.encode(text)) == text
