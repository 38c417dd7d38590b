"""Cells of Parquet files and saved data sets, whose stored values are not those that were written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rlinf.base.row_sources import split_readers

pyarrow = pytest.importorskip("pyarrow")


def rows(path: Path) -> list[Any]:
    return [record.row for reader in split_readers(str(path)).values() for record in reader()]


def test_numbers_of_32_bits_are_those_that_were_written(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    narrow = pyarrow.array([0.1, None, 3.0, 1e-10], pyarrow.float32())
    inside = pyarrow.array(
        [{"truth": 0.2}, None, {"truth": None}, {"truth": 7.0}], pyarrow.struct([("truth", narrow.type)])
    )
    vectors = pyarrow.array([[0.5]] * 4, pyarrow.list_(narrow.type))
    parquet.write_table(pyarrow.table({"answer": narrow, "reward": inside, "vector": vectors}), tmp_path / "t.parquet")
    found = rows(tmp_path / "t.parquet")
    assert [row["answer"] for row in found] == [0.1, None, 3.0, 1e-10]
    assert [row["reward"] for row in found] == [{"truth": 0.2}, None, {"truth": None}, {"truth": 7.0}]
    assert [row["vector"] for row in found] == [[0.5]] * 4


def test_classes_are_read_by_their_names(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    features = datasets.Features({"q": datasets.Value("string"), "answer": datasets.ClassLabel(names=["A", "B"])})
    table = datasets.Dataset.from_dict({"q": ["a", "b", "c"], "answer": [1, 0, -1]}, features=features)
    table.save_to_disk(tmp_path / "saved")
    table.to_parquet(tmp_path / "t.parquet")
    for path in (tmp_path / "saved", tmp_path / "t.parquet"):
        assert [row["answer"] for row in rows(path)] == ["B", "A", None], path
