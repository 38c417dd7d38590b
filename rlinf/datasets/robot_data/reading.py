"""Reads a dataset of a robot's episodes, whichever format it has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rlinf.base.hdf5_split import HDF5_SUFFIXES, file_and_split
from rlinf.base.near_paths import near_path
from rlinf.datasets.robot_data.dataset import DatasetError, RobotDataset, Statistics
from rlinf.datasets.robot_data.hdf5 import HDF5_HZ, episode_names, read_hdf5
from rlinf.datasets.robot_data.lerobot_format import INFO, read_info
from rlinf.datasets.robot_data.lerobot_reader import read_lerobot, read_statistics, read_tasks
from rlinf.datasets.robot_data.lerobot_rows import count_frames, episode_numbers
from rlinf.datasets.robot_data.minari import MINARI_FILE, UNKNOWN_RATE, is_minari, minari_episodes, read_minari


@dataclass(frozen=True)
class _Format:
    """How a kind of dataset is read, by its location."""

    read: Callable[[Path, Sequence[int] | None], RobotDataset]
    count: Callable[[Path], int]
    instructions: Callable[[Path], list[str]]
    statistics: Callable[[Path], Statistics]
    columns: Callable[[Path], list[str]]
    rate: Callable[[Path], float]
    missing: Callable[[Path], int]


def _count_of_folder(root: Path) -> int:
    read_info(root)  # another version of the format is named before its files are searched
    return len(episode_numbers(root))


_LEROBOT = _Format(
    read_lerobot,
    _count_of_folder,
    lambda root: list(read_tasks(root).values()),
    read_statistics,
    lambda root: list(read_info(root).features),
    lambda root: read_info(root).fps,
    lambda root: max(0, read_info(root).total_frames - count_frames(root)),
)
_HDF5 = _Format(
    read_hdf5,
    lambda path: len(episode_names(path)),
    lambda path: list(read_hdf5(path, [0]).instructions),
    lambda path: read_hdf5(path).statistics,
    lambda path: list(read_hdf5(path, [0]).columns),
    lambda path: HDF5_HZ,
    lambda path: 0,
)
_MINARI = _Format(
    read_minari,
    lambda location: len(minari_episodes(location)),
    lambda location: list(read_minari(location).instructions),
    lambda location: read_minari(location).statistics,
    lambda location: list(read_minari(location, [0]).columns),
    lambda location: UNKNOWN_RATE,
    lambda location: 0,
)


def read_dataset(path: str | Path, episodes: Sequence[int] | None = None) -> RobotDataset:
    """Read the dataset at ``path``, or some of its episodes by their positions in the order of their numbers.

    ``path`` is a LeRobotDataset v3 folder, a Minari dataset's folder, or an HDF5 file of LIBERO or ManiSkill
    (`FILE.hdf5#train`: the episodes of its `mask/train`). Anything else is a DatasetError.
    """
    location, kind = _found(path)
    return kind.read(location, episodes)


def count_episodes(path: str | Path) -> int:
    """How many episodes the dataset at ``path`` has; little of it is read."""
    location, kind = _found(path)
    return kind.count(location)


def dataset_instructions(path: str | Path) -> list[str]:
    """List the different instructions of the dataset at ``path``."""
    location, kind = _found(path)
    return kind.instructions(location)


def dataset_statistics(path: str | Path) -> Statistics:
    """Return the normalisation statistics of the dataset at ``path``."""
    location, kind = _found(path)
    return kind.statistics(location)


def dataset_columns(path: str | Path) -> list[str]:
    """List the names of the columns that the dataset at ``path`` declares."""
    location, kind = _found(path)
    return kind.columns(location)


def frame_rate(path: str | Path) -> float:
    """Frames of a second of the dataset at ``path``; 0 if its format has no rate."""
    location, kind = _found(path)
    return kind.rate(location)


def missing_frames(path: str | Path) -> int:
    """Count the frames that the header of the dataset at ``path`` promises, and its files lack."""
    location, kind = _found(path)
    return kind.missing(location)


def is_dataset(path: str | Path) -> bool:
    """Whether there is a dataset at ``path``, by the names of its files."""
    return _format_of(Path(path).expanduser()) is not None


def dataset_stamp(path: Path) -> str:
    """Return a stamp that changes whenever the header or the file of a dataset does."""
    files = (file_and_split(path)[0], path / INFO, path / "data" / MINARI_FILE)
    states = [file.stat() for file in files if file.is_file()]
    return ",".join(f"{state.st_mtime_ns}{state.st_size}" for state in states)


def _found(path: str | Path) -> tuple[Path, _Format]:
    location = Path(path).expanduser()
    kind = _format_of(location)
    file, _ = file_and_split(location)
    if kind is None and not file.exists():
        raise DatasetError(f"{file} does not exist. {near_path(file)}")
    if kind is None:
        raise DatasetError(
            f"{location} is no robot dataset: a LeRobotDataset v3 folder (with meta/info.json), a Minari dataset (with "
            f"data/{MINARI_FILE}) or an HDF5 file (.hdf5, .h5) of LIBERO or ManiSkill is needed"
        )
    return location, kind


def _format_of(location: Path) -> _Format | None:
    if is_minari(location):
        return _MINARI
    file, _ = file_and_split(location)
    if file.is_file() and file.suffix in HDF5_SUFFIXES:
        return _HDF5
    return _LEROBOT if (location / INFO).is_file() else None
