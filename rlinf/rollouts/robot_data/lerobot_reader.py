"""Reads a LeRobotDataset v3 folder into memory."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rlinf.packages import install_command
from rlinf.rollouts.robot_data import lerobot_format as layout
from rlinf.rollouts.robot_data.dataset import DatasetError, RobotDataset, Statistics
from rlinf.rollouts.robot_data.pictures import decode_picture
from rlinf.rollouts.robot_data.statistics import from_json
from rlinf.rollouts.video.encoder import frames_at


def read_lerobot(root: Path, episodes: Sequence[int] | None = None) -> RobotDataset:
    """All episodes of a folder, or those numbered ``episodes``. Raises DatasetError where something is missing."""
    info = layout.read_info(root)
    chosen = None if episodes is None else sorted(set(episodes))
    if chosen is not None and (not chosen or chosen[0] < 0 or chosen[-1] >= info.total_episodes):
        raise DatasetError(f"{root} has the episodes 0 to {info.total_episodes - 1}, not {list(episodes or ())}")
    table = _table(root, "data", chosen)
    rows = np.argsort(table.column("index").to_numpy(), kind="stable")
    if np.any(rows[1:] < rows[:-1]):
        table = table.take(rows)
    columns = {
        name: _column(table.column(name), feature, f"{root}: {name}")
        for name, feature in info.features.items()
        if feature["dtype"] not in ("video", "language")
    }
    number = columns.pop("episode_index")
    for name in info.keys("video"):
        columns[name] = _film_column(root, info, name, number, columns["timestamp"])
    task_index = columns.pop("task_index")
    added = ("index", "frame_index", "timestamp")
    return RobotDataset(
        path=root,
        columns={name: values for name, values in columns.items() if name not in added},
        lengths=np.unique(number, return_counts=True)[1].astype(np.int64),
        instructions=read_tasks(root),
        task_index=task_index,
        fps=info.fps,
        statistics=read_statistics(root),
    )


def read_tasks(root: Path) -> list[str]:
    """The instructions of a folder, by their numbers."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pq.read_table(root / layout.TASKS)
    # The words are pandas' index, under whatever name it had.
    words = [name for name in table.column_names if pa.types.is_string(table.schema.field(name).type)]
    words += [name for name in table.column_names if pa.types.is_large_string(table.schema.field(name).type)]
    if len(words) != 1:
        raise DatasetError(f"{root / layout.TASKS} has the columns {', '.join(table.column_names)}: which are words?")
    found = dict(zip(table.column("task_index").to_pylist(), table.column(words[0]).to_pylist(), strict=True))
    return [found[index] for index in range(len(found))]


def _table(root: Path, folder: str, episodes: Sequence[int] | None) -> Any:
    """The rows of all Parquet files below a folder, those of some episodes."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    files = sorted((root / folder).glob("*/*.parquet"))
    if not files:
        raise DatasetError(f"{root / folder} holds no Parquet files")
    wanted = None if episodes is None else [("episode_index", "in", list(episodes))]
    return pa.concat_tables([pq.read_table(file, filters=wanted) for file in files], promote_options="default")


def _column(column: Any, feature: Any, place: str) -> np.ndarray:
    """[N, ...] of a column of the table; pictures decoded."""
    import pyarrow as pa

    if feature["dtype"] == "image":
        return np.stack([_picture(entry, place) for entry in column.to_pylist()])
    if feature["dtype"] == "string":
        return np.array(column.to_pylist(), dtype=object)
    array, shape = column.combine_chunks(), tuple(feature["shape"])
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    while pa.types.is_nested(array.type):
        array = array.flatten()
    values = array.to_numpy(zero_copy_only=False).astype(feature["dtype"])
    return values if shape == (1,) else values.reshape(len(column), *shape)


def _picture(entry: Any, place: str) -> np.ndarray:
    if not entry or entry.get("bytes") is None:
        raise DatasetError(f"{place}: a picture is not in the Parquet file")
    return decode_picture(entry["bytes"], place)


def _film_column(root: Path, info: layout.Info, name: str, number: np.ndarray, times: np.ndarray) -> np.ndarray:
    """[N, H, W, 3]: each frame's picture, from the films that its episode's row names."""
    wanted: dict[Path, list[tuple[float, int]]] = {}
    assert info.video_path is not None
    keys = ("chunk_index", "file_index", "from_timestamp")
    rows = _table(root, "meta/episodes", np.unique(number).tolist())
    starts = {
        episode: [rows.column(f"videos/{name}/{key}")[at].as_py() for key in keys]
        for at, episode in enumerate(rows.column("episode_index").to_pylist())
    }
    for row, (episode, time) in enumerate(zip(number.tolist(), times.tolist(), strict=True)):
        chunk, file, begins = starts[episode]
        path = root / info.video_path.format(video_key=name, chunk_index=chunk, file_index=file)
        wanted.setdefault(path, []).append((begins + time, row))
    pictures = np.zeros((len(number), *info.features[name]["shape"]), dtype=np.uint8)
    for path, places in wanted.items():
        try:
            for row, frame in frames_at(path, places, tolerance_s=0.5 / info.fps):
                pictures[row] = frame
        except ImportError as error:
            raise DatasetError(f"{path}: films of a dataset need PyAV: {install_command('video')}") from error
        except (OSError, ValueError) as error:
            raise DatasetError(f"{path}: {error}") from error
    return pictures


def read_statistics(root: Path) -> Statistics:
    """The statistics of a folder; empty where it has none."""
    path = root / layout.STATS
    try:
        return from_json(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}
    except (ValueError, AttributeError) as error:
        raise DatasetError(f"{path} holds no statistics: {error}") from error
