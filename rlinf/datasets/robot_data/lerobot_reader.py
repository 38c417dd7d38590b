"""Reads a LeRobotDataset v3 folder into memory."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rlinf.datasets.robot_data import lerobot_format as layout
from rlinf.datasets.robot_data.dataset import DatasetError, RobotDataset, Statistics, frame_location
from rlinf.datasets.robot_data.lerobot_columns import UnusableColumn, column_values
from rlinf.datasets.robot_data.lerobot_films import film_column
from rlinf.datasets.robot_data.lerobot_rows import Rows, episode_numbers, read_rows, whole_numbers
from rlinf.datasets.robot_data.statistics import from_json

_TIME, _TASK = "timestamp", "task_index"


def read_lerobot(root: Path, episodes: Sequence[int] | None = None) -> RobotDataset:
    """Read all episodes of a folder, or those at the positions ``episodes`` in the order of their numbers.

    Raises DatasetError if something is missing or damaged; it names file, column and frame.
    """
    info = layout.read_info(root)
    rows = read_rows(root, None if episodes is None else _chosen(root, episodes))
    location = functools.partial(frame_location, rows.origins, rows.lengths)
    columns: dict[str, np.ndarray] = {}
    unusable: dict[str, str] = {}
    for name, feature in info.features.items():
        if feature["dtype"] in ("video", "language") or name in layout.ADDED:
            continue
        if name not in rows.table.column_names:
            unusable[name] = f"{layout.INFO} declares it, and no file below {root / 'data'} holds it"
            continue
        try:
            columns[name] = column_values(rows.table.column(name), feature, name, location)
        except UnusableColumn as error:
            unusable[name] = str(error)
    films = info.keys("video")
    if films:
        if _TIME not in rows.table.column_names:
            raise DatasetError(f"{root / 'data'} has no column {_TIME}, by which frames are found in {films[0]}")
        times = rows.table.column(_TIME).to_numpy().astype(np.float64)
        columns |= {name: film_column(root, info, name, rows, times) for name in films}
    instructions, task_index = _tasks_of(root, rows)
    return RobotDataset(
        path=root,
        columns=columns,
        lengths=rows.lengths,
        instructions=instructions,
        task_index=task_index,
        fps=info.fps,
        statistics=read_statistics(root),
        origins=rows.origins,
        unusable=unusable,
    )


def read_tasks(root: Path) -> dict[int, str]:
    """Read the instructions of a folder by their numbers, ascending; numbers may have gaps."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = root / layout.TASKS
    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        raise DatasetError(f"{path}, the instructions, cannot be read: {error}") from error
    numbers = whole_numbers(table, _TASK, str(path)).tolist()
    words = table.column(_words_column(table, path)).to_pylist()
    results: dict[int, str] = {}
    for number, text in sorted(zip(numbers, words, strict=True), key=lambda pair: pair[0]):
        if number in results:
            raise DatasetError(f"{path} has {_TASK} {number} twice: {results[number]!r} and {text!r}. Keep one")
        if text is None:
            raise DatasetError(f"{path}: {_TASK} {number} has no words. Write its instruction, or an empty text")
        results[number] = text
    return results


def _words_column(table: Any, path: Path) -> str:
    """Find the column of words: pandas' index, under the name that it had; or the column `task`."""
    import pyarrow as pa

    texts = (pa.types.is_string, pa.types.is_large_string)
    words: list[str] = [field.name for field in table.schema if any(kind(field.type) for kind in texts)]
    for usual in ("task", "__index_level_0__"):
        if usual in words:
            return usual
    if len(words) != 1:
        raise DatasetError(f"{path} has the columns {', '.join(table.column_names)}: name the one of words `task`")
    return words[0]


def _tasks_of(root: Path, rows: Rows) -> tuple[list[str], np.ndarray]:
    """Return the instructions, and each frame's position [N] among them."""
    tasks = read_tasks(root)
    if not tasks:
        raise DatasetError(f"{root / layout.TASKS} holds no instruction. Write one row, with an empty text at least")
    if _TASK not in rows.table.column_names:
        if len(tasks) > 1:
            raise DatasetError(f"{root / 'data'} has no column {_TASK}, and there are {len(tasks)} instructions")
        return list(tasks.values()), np.zeros(int(rows.lengths.sum()), dtype=np.int64)
    requested = whole_numbers(rows.table, _TASK, str(root / "data"))
    numbers = np.array(list(tasks), dtype=np.int64)
    unknown = np.flatnonzero(~np.isin(requested, numbers))
    if len(unknown):
        location = frame_location(rows.origins, rows.lengths, int(unknown[0]))
        raise DatasetError(
            f"{location}: {_TASK} is {requested[unknown[0]]}, and {root / layout.TASKS} has "
            f"{', '.join(map(str, tasks))}. Add the instruction there, or correct the number"
        )
    return list(tasks.values()), np.searchsorted(numbers, requested)


def _chosen(root: Path, episodes: Sequence[int]) -> list[int]:
    """Return the numbers of the episodes at these positions."""
    numbers, chosen = episode_numbers(root), sorted(set(episodes))
    if not chosen or chosen[0] < 0 or chosen[-1] >= len(numbers):
        raise DatasetError(
            f"{root} has the episodes 0 to {len(numbers) - 1} (in the order of their numbers), not {list(episodes)}"
        )
    return [int(numbers[index]) for index in chosen]


def read_statistics(root: Path) -> Statistics:
    """Read the statistics of a folder; empty if it has none."""
    path = root / layout.STATS
    try:
        return from_json(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}
    except (ValueError, AttributeError) as error:
        raise DatasetError(f"{path} holds no statistics: {error}") from error
