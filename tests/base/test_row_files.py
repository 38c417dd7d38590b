"""Files of rows: every kind gives the same rows with their locations, and damage is named."""

from __future__ import annotations

import csv
import gzip
import io
import json
from pathlib import Path

import pytest

from rlinf.base.row_files import RowFileError, read_rows

ROWS = [{"question": "1, 2 or\n3?", "answer": "007"}, {"question": 'write "x"', "answer": "ä"}]


def table(delimiter: str) -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, ROWS[0], delimiter=delimiter)
    writer.writeheader()
    writer.writerows(ROWS)
    return text.getvalue().encode()


LINES = "".join(json.dumps(row) + "\n" for row in ROWS).encode()
WHOLE = json.dumps(ROWS).encode()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.jsonl", LINES),
        ("a.ndjson", LINES),
        ("a.json", WHOLE),
        ("a.json", json.dumps({"data": ROWS}).encode()),
        ("a.csv", table(",")),
        ("a.csv", b"\xef\xbb\xbf" + table(",")),
        ("a.tsv", table("\t")),
        ("a.jsonl.gz", gzip.compress(LINES, mtime=0)),
        ("a.csv.gz", gzip.compress(table(","), mtime=0)),
    ],
)
def test_every_kind_of_file_gives_the_same_rows(name: str, content: bytes, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    assert [record.row for record in read_rows(tmp_path / name)] == ROWS


def test_an_empty_cell_is_null_and_a_short_line_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("question,answer\n1?,\n2?\n3?,4\n")
    first, second, third = read_rows(tmp_path / "a.csv")
    assert first.row == {"question": "1?", "answer": None}
    assert (second.row, second.location) == (None, f"{tmp_path}/a.csv:3")
    assert second.problem == "the row has 1 cells, and the first line has 2"
    assert third.row == {"question": "3?", "answer": "4"}


def test_a_row_that_is_a_list_of_messages_is_numbered(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps([[{"from": "human", "value": "1?"}, {"from": "gpt", "value": "2"}]]))
    (only,) = read_rows(tmp_path / "a.json")
    assert only.row == {"0": {"from": "human", "value": "1?"}, "1": {"from": "gpt", "value": "2"}}


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.csv", b"question;answer\n1?;2\n", r"a\.csv:1: cells are separated by ';'"),
        ("a.csv", b"question|answer\n1?|2\n", r"a\.csv:1: cells are separated by '\|'"),
        ("a.json", b'{"a": 1,}\n', r"a\.json:1: no valid JSON: .* \(take out the comma before it\)"),
        ("a.csv", b"question,question\n1,2\n", r"a\.csv:1: the first line must name each column, once"),
        ("a.csv", b"question,answer\n1,\xff\n", r"a\.csv:2: no readable table in UTF-8"),
        ("a.jsonl.gz", gzip.compress(LINES, mtime=0)[:-9], r"a\.jsonl\.gz: no whole gzip file"),
        ("a.xlsx", b"", r"cannot read \.xlsx"),
        ("a.jsonl.zst", b"", r"cannot read \.zst.* \(unpack it, or pack it with gzip\)"),
        ("data-00000-of-00001.arrow", b"", r"\(the folder that `datasets` saved is read as a whole: "),
        ("a.json", b'[{"a": 1},\n{"a": 2},\n]', r"a\.json:3: no valid JSON: .* \(take out the comma before it\)"),
    ],
)
def test_damage_is_named(name: str, content: bytes, words: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(RowFileError, match=words):
        list(read_rows(tmp_path / name))


@pytest.mark.parametrize(
    "wrapped",
    [
        {"version": "1.0", "schema": {"fields": []}, "data": ROWS},
        {"name": "sums", "metrics": ["exact"], "examples": ROWS},
        {"features": [], "rows": [{"row_idx": at, "row": row, "truncated_cells": []} for at, row in enumerate(ROWS)]},
    ],
)
def test_a_json_file_may_hold_other_keys_than_its_rows(wrapped: dict[str, object], tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(wrapped))
    assert [record.row for record in read_rows(tmp_path / "a.json")] == ROWS


@pytest.mark.parametrize("content", [json.dumps(ROWS, indent=1), json.dumps(ROWS[0], indent=1)])
def test_rows_over_several_lines_are_no_jsonl(content: str, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(content)
    with pytest.raises(RowFileError, match=r"a\.jsonl:1: a \.jsonl file has one whole object on each line"):
        list(read_rows(tmp_path / "a.jsonl"))


def test_the_index_that_pandas_writes_is_no_column(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text(",question,answer\n0,1+1?,2\n1,2+2?,4\n")
    found = [record.row for record in read_rows(tmp_path / "rows.csv")]
    assert found == [{"question": "1+1?", "answer": "2"}, {"question": "2+2?", "answer": "4"}]
    (tmp_path / "rows.csv").write_text("question,,answer\n1+1?,x,2\n")
    with pytest.raises(RowFileError, match="must name each column"):
        list(read_rows(tmp_path / "rows.csv"))


def test_what_programs_write_by_mistake_is_named(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text("{'question': '1+1?'}\n")
    assert "write rows with json.dumps" in next(read_rows(tmp_path / "rows.jsonl")).problem
    for joined in ('{"a": 1},\n{"a": 2}', '{"a": 1}{"a": 2}'):
        (tmp_path / "rows.jsonl").write_text(joined)
        assert "one row stands on each line, with nothing behind it" in next(read_rows(tmp_path / "rows.jsonl")).problem
    (tmp_path / "rows.json").write_text('{"train": [{"question": "1+1?"}], "test": []}')
    with pytest.raises(RowFileError, match=r"several splits: write them to a folder, as train\.json, test\.json"):
        list(read_rows(tmp_path / "rows.json"))
