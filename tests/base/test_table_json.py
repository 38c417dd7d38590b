"""Tests for tables that pandas writes as one JSON object: each orient has the same rows, or an error names a fix."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rlinf.base.row_files import RowFileError, read_rows
from rlinf.base.table_json import orientation

ROWS = [{"question": "1+1?", "answer": "2"}, {"question": "2+2?", "answer": None}, {"question": "3+3?", "answer": "6"}]


@pytest.fixture
def pandas() -> Any:
    return pytest.importorskip("pandas")


def rows(file: Path) -> list[Any]:
    return [record.row for record in read_rows(file)]


@pytest.mark.parametrize("orient", ["columns", "index", "split", "records"])
def test_each_orient_has_the_rows(pandas: Any, orient: str, tmp_path: Path) -> None:
    for table in (pandas.DataFrame(ROWS), pandas.DataFrame(ROWS, index=[7, 3, 12])):
        table.to_json(tmp_path / "rows.json", orient=orient)
        assert rows(tmp_path / "rows.json") == ROWS


def test_a_table_with_its_schema_has_the_rows_with_their_numbers(pandas: Any, tmp_path: Path) -> None:
    pandas.DataFrame(ROWS).to_json(tmp_path / "rows.json", orient="table")
    assert rows(tmp_path / "rows.json") == [{"index": number, **row} for number, row in enumerate(ROWS)]


def test_columns_as_lists_have_the_rows(pandas: Any, tmp_path: Path) -> None:
    (tmp_path / "rows.json").write_text(json.dumps(pandas.DataFrame(ROWS, dtype=object).to_dict("list")))
    assert rows(tmp_path / "rows.json") == ROWS
    conversation = {"messages": [{"role": "user"}, {"role": "assistant"}], "tools": [{"name": "f"}, {"name": "g"}]}
    assert orientation(conversation) is None


def test_values_without_names_are_refused(pandas: Any, tmp_path: Path) -> None:
    pandas.DataFrame(ROWS).to_json(tmp_path / "rows.json", orient="values")
    with pytest.raises(
        RowFileError, match=r"orient 'values' of pandas .* to_json\(path, orient='records', lines=True\)"
    ):
        rows(tmp_path / "rows.json")


@pytest.mark.parametrize("orient", ["columns", "index", "split"])
def test_a_table_is_no_line_of_jsonl(pandas: Any, orient: str, tmp_path: Path) -> None:
    pandas.DataFrame(ROWS).to_json(tmp_path / "rows.jsonl", orient=orient)
    with pytest.raises(RowFileError, match=f"one table in the orient '{orient}'.*lines=True"):
        rows(tmp_path / "rows.jsonl")


@pytest.mark.parametrize(
    "content",
    [
        {"question": "1+1?", "answer": "2"},
        {"prompt": {"role": "user", "content": "1+1?"}, "answer": {"role": "assistant", "content": "2"}},
        {"data": [{"question": "1+1?"}]},
        {"question": {"0": "1+1?"}, "answer": "2"},
        [[{"role": "user", "content": "1+1?"}]],
        {"columns": 3, "data": 7},
        {"columns": None, "data": None},
        [],
        {},
    ],
)
def test_other_contents_are_no_tables(content: Any, tmp_path: Path) -> None:
    assert orientation(content) is None
    if content:
        (tmp_path / "rows.json").write_text(json.dumps(content))
        assert len(rows(tmp_path / "rows.json")) == 1
