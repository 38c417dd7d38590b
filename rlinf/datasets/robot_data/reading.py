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
    place = _place(path)
    if place.suffix in _HDF5_SUFFIXES:
        return read_hdf5(place, episodes)
    return read_lerobot(place, episodes)


def count_episodes(path: str | Path) -> int:
    """How many episodes the dataset at ``path`` has; little of it is read."""
    place = _place(path)
    if place.suffix in _HDF5_SUFFIXES:
        return len(episode_names(place))
    read_info(place)  # another version of the format is named before its files are searched
    return len(episode_numbers(place))


def dataset_instructions(path: str | Path) -> list[str]:
    """List the different instructions of the dataset at ``path``."""
    place = _place(path)
    if place.suffix in _HDF5_SUFFIXES:
        return list(read_dataset(place, [0]).instructions)
    return list(read_tasks(place).values())


def dataset_statistics(path: str | Path) -> Statistics:
    """Return the normalisation statistics of the dataset at ``path``."""
    place = _place(path)
    if place.suffix in _HDF5_SUFFIXES:
        return read_dataset(place).statistics
    return read_statistics(place)


def _place(path: str | Path) -> Path:
    place = Path(path).expanduser()
    if place.is_file() and place.suffix in _HDF5_SUFFIXES:
        return place
    if (place / "meta" / "info.json").is_file():
        return place
    requested = "a LeRobotDataset v3 folder (with meta/info.json) or an HDF5 file (.hdf5, .h5) of LIBERO or ManiSkill"
    raise DatasetError(f"{place} is no robot dataset: {requested} is needed")


def dataset_columns(path: str | Path) -> list[str]:
    """List the names of the columns that the dataset at ``path`` declares."""
    place = _place(path)
    if place.suffix in _HDF5_SUFFIXES:
        return column_names(place)
    return list(read_info(place).features)


def frame_rate(path: str | Path) -> float:
    """Frames of a second of the dataset at ``path``."""
    place = _place(path)
    if place.suffix in _HDF5_SUFFIXES:
        return HDF5_HZ
    return read_info(place).fps
