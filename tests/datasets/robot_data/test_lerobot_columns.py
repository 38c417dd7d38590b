"""Columns that are not quite as in the header: read exactly, or named; never shifted, cut or taken for true."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from test_lerobot_rows import change_header, rows_of
from test_lerobot_writer import episode, write

from rlinf.datasets.robot_data.dataset import DatasetError
from rlinf.datasets.robot_data.decisions import decisions, terminal_frames
from rlinf.datasets.robot_data.outcomes import succeeded
from rlinf.datasets.robot_data.pictures import decode_picture
from rlinf.datasets.robot_data.reading import read_dataset


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path / "set", [episode(4, 0), episode(3, 1)])
    return tmp_path / "set"


def put(folder: Path, name: str, values: pa.Array, **described: Any) -> None:
    """Replaces or adds a column of the rows, and describes it in the header."""
    table = pq.read_table(rows_of(folder))
    if name in table.column_names:
        table = table.drop([name])
    pq.write_table(table.append_column(name, values), rows_of(folder))
    change_header(folder, lambda info: info["features"].setdefault(name, {"names": None}).update(described))


def test_rows_of_unequal_size_are_named_though_their_sum_is_right(folder: Path) -> None:
    uneven = [[1.0, 2.0], [3.0], [4.0, 5.0, 6.0], *[[0.0, 0.0]] * 4]
    put(folder, "action", pa.array(uneven, pa.list_(pa.float32())))
    with pytest.raises(
        DatasetError, match=r"episode 0, frame 1: action has 1 numbers, and its shape in meta/info.json is \[2\]"
    ):
        read_dataset(folder)


@pytest.mark.parametrize("kind", [pa.list_(pa.float64()), pa.large_list(pa.float32()), pa.list_(pa.float32(), 2)])
def test_every_kind_of_list_gives_the_same_numbers(folder: Path, kind: Any) -> None:
    before = read_dataset(folder).columns["action"]
    put(folder, "action", pa.array(before.tolist(), kind))
    assert np.array_equal(read_dataset(folder).columns["action"], before)


def test_floats_that_the_header_calls_whole_numbers_are_not_cut(folder: Path) -> None:
    change_header(folder, lambda info: info["features"]["action"].update(dtype="int64"))
    found = read_dataset(folder)
    with pytest.raises(DatasetError, match="action, to be imitated, cannot be used: it holds float, not int64"):
        found.column("action", "to be imitated")


@pytest.mark.parametrize(
    ("values", "dtype"), [(["False"] * 7, "string"), ([float("nan")] * 7, "float32"), ([0.5] * 7, "float32")]
)
def test_what_is_no_flag_is_not_taken_for_true(folder: Path, values: list[Any], dtype: str) -> None:
    put(folder, "next.success", pa.array(values), dtype=dtype, shape=[1])
    found = read_dataset(folder)
    for use in (succeeded, terminal_frames):
        with pytest.raises(DatasetError, match=r"next.success, which shows .*, is no column of flags"):
            use(found)


def test_flags_may_be_kept_as_numbers(folder: Path) -> None:
    put(folder, "next.success", pa.array([0.0, 0, 0, 1, 0, 0, 0], pa.float32()), dtype="float32", shape=[1])
    put(folder, "demonstrated", pa.array([1, 1, 0, 1, 1, 1, 1]), dtype="int64", shape=[1])
    found = read_dataset(folder)
    assert succeeded(found).tolist() == [True, False]
    assert decisions(found, chunk=1, stride=1).frames.tolist() == [0, 1, 3, 4, 5, 6]


def test_depth_is_not_squeezed_into_bytes() -> None:
    images = pytest.importorskip("PIL.Image", reason="needs the extra video")
    file = io.BytesIO()
    images.fromarray(np.arange(64, dtype=np.uint16).reshape(8, 8) * 1000).save(file, "PNG")
    with pytest.raises(DatasetError, match="frame 3: a picture has pixels of mode I;16, such as depth"):
        decode_picture(file.getvalue(), "frame 3")
