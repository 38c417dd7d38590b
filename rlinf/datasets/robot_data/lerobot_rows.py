"""The rows of a LeRobotDataset v3 folder in the order of (episode, frame).

Episodes and tasks are found by their numbers: after a deletion or a merge these have gaps. The column ``index`` may
begin again in every file. It is not read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rlinf.datasets.robot_data.dataset import DatasetError

_EPISODE, _FRAME = "episode_index", "frame_index"


@dataclass(frozen=True)
class Rows:
    """Frames of whole episodes, ordered."""

    table: Any
    """An Arrow table of N rows."""
    episodes: np.ndarray
    """[E] int64: the numbers that the folder gives to the episodes, ascending."""
    lengths: np.ndarray
    """[E] int64."""
    origins: Sequence[str]
    """[E] file and episode of each, for messages."""


def episode_numbers(root: Path) -> np.ndarray:
    """Read the numbers of a folder's episodes, ascending: [E] int64."""
    files = _files(root, "data")
    parts = [whole_numbers(_read(file, columns=[_EPISODE]), _EPISODE, str(file)) for file in files]
    return np.unique(np.concatenate(parts))


def count_frames(root: Path) -> int:
    """Count the frames in a folder's files."""
    return sum(len(_read(file, columns=[_EPISODE])) for file in _files(root, "data"))


def read_rows(root: Path, episodes: Sequence[int] | None) -> Rows:
    """All frames, or those of the ``episodes`` with these numbers.

    Raises DatasetError for a frame that is there twice, and for a frame that is missing within an episode.
    """
    files = _files(root, "data")
    tables = [_read(file, episodes=episodes) for file in files]
    table = joined(tables, root / "data")
    episode, frame = (
        np.concatenate([whole_numbers(part, name, str(file)) for part, file in zip(tables, files, strict=True)])
        for name in (_EPISODE, _FRAME)
    )
    if not len(episode):
        raise DatasetError(f"{root / 'data'} holds no frames")
    order = np.lexsort((frame, episode))
    file_of = np.repeat(np.arange(len(files)), [len(part) for part in tables])[order]
    episode, frame = episode[order], frame[order]
    if np.any(order[1:] < order[:-1]):
        table = table.take(order)
    numbers, first, lengths = np.unique(episode, return_index=True, return_counts=True)
    origins = [f"{files[file_of[at]]}: episode {number}" for number, at in zip(numbers, first, strict=True)]
    _require_consecutive(episode, frame, [str(files[at]) for at in np.unique(file_of)])
    return Rows(table, numbers, lengths.astype(np.int64), origins)


def read_table(root: Path, folder: str, episodes: Sequence[int] | None = None) -> Any:
    """Read the rows of all Parquet files below a folder, or those of the episodes with these numbers."""
    return joined([_read(file, episodes=episodes) for file in _files(root, folder)], root / folder)


def joined(tables: Sequence[Any], location: Path) -> Any:
    """Join the tables of several files. Raises DatasetError if their columns have types that do not agree."""
    import pyarrow as pa

    try:
        return pa.concat_tables(tables, promote_options="permissive")
    except pa.ArrowException as error:
        raise DatasetError(f"{location}: the Parquet files do not agree on their columns: {error}") from error


def whole_numbers(table: Any, name: str, location: str) -> np.ndarray:
    """Read a column of whole numbers [N] int64. Raises DatasetError if absent, empty in a row, or of another type."""
    import pyarrow as pa

    if name not in table.column_names:
        raise DatasetError(f"{location} has no column {name}, only {', '.join(table.column_names)}")
    column = table.column(name)
    if column.null_count:
        row = column.is_null().to_pylist().index(True)
        raise DatasetError(f"{location}: row {row} has no {name}. Fill it in, or take the row out")
    try:
        result: np.ndarray = column.cast(pa.int64()).to_numpy()
    except pa.ArrowException as error:
        raise DatasetError(f"{location}: {name} is {column.type}, not whole numbers: {error}") from error
    return result


def _require_consecutive(episode: np.ndarray, frame: np.ndarray, files: Sequence[str]) -> None:
    step = np.diff(frame)
    bad = np.flatnonzero((np.diff(episode) == 0) & (step != 1))
    if not len(bad):
        return
    at = int(bad[0])
    location = f"{', '.join(files[:3])}{' ...' if len(files) > 3 else ''}: episode {episode[at]}"
    if step[at] == 0:
        raise DatasetError(
            f"{location} has frame {frame[at]} twice (columns {_EPISODE} and {_FRAME}). Episodes that were put "
            "together need numbers of their own: give each another episode_index"
        )
    raise DatasetError(
        f"{location} goes from frame {frame[at]} to frame {frame[at + 1]} (column {_FRAME}), and actions are imitated "
        "one after the other. Export the episode again with all frames, or take it out"
    )


def _files(root: Path, folder: str) -> list[Path]:
    files = sorted((root / folder).glob("*/*.parquet"))
    if not files:
        raise DatasetError(f"{root / folder} holds no Parquet files")
    return files


def _read(file: Path, *, columns: list[str] | None = None, episodes: Sequence[int] | None = None) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    requested = None if episodes is None else [(_EPISODE, "in", list(episodes))]
    try:
        if columns is not None or requested is not None:
            present = pq.read_schema(file).names
            missing = {*(columns or ()), *([_EPISODE] if requested else ())} - set(present)
            if missing:
                raise DatasetError(f"{file} has no column {sorted(missing)[0]}, only {', '.join(present)}")
        return pq.read_table(file, columns=columns, filters=requested)
    except (OSError, pa.ArrowException) as error:
        raise DatasetError(f"{file} cannot be read: {error}") from error
