"""Reads a dataset of a robot's episodes, whichever format it has."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rlinf.datasets.robot_data.dataset import DatasetError, RobotDataset, Statistics
from rlinf.datasets.robot_data.hdf5 import HDF5_HZ, column_names, episode_names, read_hdf5
from rlinf.datasets.robot_data.lerobot_format import read_info
from rlinf.datasets.robot_data.lerobot_reader import read_lerobot, read_statistics, read_tasks
from rlinf.datasets.robot_data.lerobot_rows import episode_numbers

_HDF5_SUFFIXES = (".hdf5", ".h5")


def read_dataset(path: str | Path, episodes: Sequence[int] | None = None) -> RobotDataset:
    """Read the dataset at ``path``, or some of its episodes by their positions in the order of their numbers.

    ``path`` is a LeRobotDataset v3 folder, or an HDF5 file of LIBERO or ManiSkill. Anything else is a
    DatasetError.
    """
    location = _place(path)
    if location.suffix in _HDF5_SUFFIXES:
        return read_hdf5(location, episodes)
    return read_lerobot(location, episodes)


def count_episodes(path: str | Path) -> int:
    """How many episodes the dataset at ``path`` has; little of it is read."""
    location = _place(path)
    if location.suffix in _HDF5_SUFFIXES:
        return len(episode_names(location))
    read_info(location)  # another version of the format is named before its files are searched
    return len(episode_numbers(location))


def dataset_instructions(path: str | Path) -> list[str]:
    """List the different instructions of the dataset at ``path``."""
    location = _place(path)
    if location.suffix in _HDF5_SUFFIXES:
        return list(read_dataset(location, [0]).instructions)
    return list(read_tasks(location).values())


def dataset_statistics(path: str | Path) -> Statistics:
    """Return the normalisation statistics of the dataset at ``path``."""
    location = _place(path)
    if location.suffix in _HDF5_SUFFIXES:
        return read_dataset(location).statistics
    return read_statistics(location)


def _place(path: str | Path) -> Path:
    location = Path(path).expanduser()
    if location.is_file() and location.suffix in _HDF5_SUFFIXES:
        return location
    if (location / "meta" / "info.json").is_file():
        return location
    requested = "a LeRobotDataset v3 folder (with meta/info.json) or an HDF5 file (.hdf5, .h5) of LIBERO or ManiSkill"
    raise DatasetError(f"{location} is no robot dataset: {requested} is needed")


def dataset_columns(path: str | Path) -> list[str]:
    """List the names of the columns that the dataset at ``path`` declares."""
    location = _place(path)
    if location.suffix in _HDF5_SUFFIXES:
        return column_names(location)
    return list(read_info(location).features)


def frame_rate(path: str | Path) -> float:
    """Frames of a second of the dataset at ``path``."""
    location = _place(path)
    if location.suffix in _HDF5_SUFFIXES:
        return HDF5_HZ
    return read_info(location).fps
