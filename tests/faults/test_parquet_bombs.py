"""Parquet files that hold more than they weigh: refused by a stated limit, or row by row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rlinf_envs import datasets
from rlinf_envs.errors import DatasetError

from rlinf.base.errors import UserError
from rlinf.base.parquet_rows import ParquetError, parquet_rows
from rlinf.datasets.conversation_files import read_pairs

pa = pytest.importorskip("pyarrow")
parquet: Any = pytest.importorskip("pyarrow.parquet")


def write(path: Path, columns: Any, **options: Any) -> Path:
    parquet.write_table(pa.table(columns), path, compression="zstd", **options)
    return path


def test_rows_that_are_long_on_average_are_refused_before_they_are_read(tmp_path: Path) -> None:
    file = write(tmp_path / "long.parquet", {"question": ["q" * 20_000_000] * 2, "answer": ["1", "2"]})
    assert file.stat().st_size < 20_000
    with pytest.raises(DatasetError, match=r"long\.parquet: rows have 9 MiB on average, and at most 8 are read"):
        list(datasets.select(str(file), None).records)


def test_one_text_that_a_thousand_rows_name_is_refused(tmp_path: Path) -> None:
    text = pa.DictionaryArray.from_arrays(pa.array([0] * 1000), pa.array(["q" * 70_000_000]))
    file = write(tmp_path / "named.parquet", {"question": text})
    with pytest.raises(ParquetError, match=r"row group 0 expands from \d+ KiB to 66 MiB, more than 200 times"):
        next(parquet_rows(file))


@pytest.mark.parametrize("nested", [False, True])
def test_a_long_row_is_reported_and_the_others_are_read(tmp_path: Path, nested: bool) -> None:
    texts = ["short", "q" * 9_000_000, None, "last"]
    values = [[{"role": "user", "content": text}] for text in texts] if nested else texts
    file = write(tmp_path / "mixed.parquet", {"messages": values, "number": [1, 2, 3, 4]})
    rows = list(parquet_rows(file))
    assert rows[1] == "the row has over 8 MiB"
    assert [row["number"] for row in rows if not isinstance(row, str)] == [1, 3, 4]
    assert [row["messages"] for row in rows if not isinstance(row, str)] == [values[0], values[2], values[3]]


def test_rows_are_counted_before_they_are_read(tmp_path: Path) -> None:
    file = write(tmp_path / "many.parquet", {"question": ["q"] * 5_000})
    with pytest.raises(ParquetError, match=r"the file has 5,000 rows, and at most 4,999 are read"):
        next(parquet_rows(file, max_rows=4_999))
    assert len(list(parquet_rows(file, max_rows=5_000))) == 5_000


def test_several_files_are_counted_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets, "MAX_ROWS", 5)
    for name in ("train-0.jsonl", "train-1.jsonl"):
        (tmp_path / name).write_text('{"question": "1+1", "answer": "2"}\n' * 3)
    with pytest.raises(DatasetError, match="has more than 5 rows of one split"):
        list(datasets.select(str(tmp_path), None).records)


def test_pairs_have_the_same_limits(tmp_path: Path) -> None:
    file = write(tmp_path / "pairs.parquet", {"prompt": ["q" * 20_000_000] * 2})
    with pytest.raises(UserError, match="rows have 9 MiB on average"):
        read_pairs(str(file))
    (tmp_path / "no.parquet").write_bytes(b"PAR1 and nothing else")
    with pytest.raises(UserError, match=r"no\.parquet: no readable Parquet file"):
        read_pairs(str(tmp_path / "no.parquet"))


def test_what_the_library_does_not_support_is_an_error_that_names_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write(tmp_path / "packed.parquet", {"question": ["1+1"]})

    def refuse(self: object, *args: object, **options: object) -> None:
        raise pa.ArrowNotImplementedError("Support for codec 'lzo' not built")

    monkeypatch.setattr(parquet.ParquetFile, "iter_batches", refuse)
    with pytest.raises(ParquetError, match=r"packed\.parquet: no readable Parquet file: Support for codec 'lzo'"):
        list(parquet_rows(file))
