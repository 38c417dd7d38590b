"""Recorded episodes in memory, whichever format they come from.

N frames of E episodes lie end to end. Columns have LeRobot's names: ``observation.state``,
``observation.images.<name>`` (uint8 [H, W, 3]), ``action``, and where they were recorded ``next.reward``,
``next.done``, ``next.terminated``, ``next.success`` and ``demonstrated`` (false for the random actions of a perturbed
demonstrator).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from rlinf.errors import UserError
from rlinf.spaces import Arrays

ACTION, REWARD, DONE, TERMINATED, SUCCESS, DEMONSTRATED = (
    "action",
    "next.reward",
    "next.done",
    "next.terminated",
    "next.success",
    "demonstrated",
)
HDF5_SUFFIXES = (".hdf5", ".h5")
Statistics = dict[str, dict[str, np.ndarray]]
"""By column: mean, std, min, max, count and quantiles (q01 to q99)."""


class DatasetError(UserError):
    """A dataset that cannot be read, or does not fit the environment; the message names file and column."""


@dataclass(frozen=True)
class RobotDataset:
    """Some episodes of a dataset."""

    path: Path
    columns: Mapping[str, np.ndarray]
    """[N, ...] each."""
    lengths: np.ndarray
    """[E] int64: frames of each episode."""
    instructions: Sequence[str]
    """What was to be done, in words."""
    task_index: np.ndarray
    """[N] int64: each frame's place in ``instructions``."""
    fps: float
    statistics: Statistics
    """Of the whole dataset."""
    finals: Mapping[str, np.ndarray] = field(default_factory=dict)
    """[E, ...] observations after the last action, in formats that keep them."""

    @property
    def num_frames(self) -> int:
        return int(self.lengths.sum())

    def episodes(self) -> Iterator[range]:
        """The frames of each episode."""
        edges = np.concatenate([[0], np.cumsum(self.lengths)]).tolist()
        return (range(first, last) for first, last in itertools.pairwise(edges))


@dataclass(frozen=True)
class Episode:
    """One episode of T steps, as it is recorded."""

    columns: Arrays
    """[T, ...] by the dataset's names; without what a format adds (indices, timestamps)."""
    instruction: str

    @property
    def length(self) -> int:
        return len(self.columns[ACTION])


def read_dataset(path: str | Path, episodes: Sequence[int] | None = None) -> RobotDataset:
    """The dataset at ``path``, or some of its episodes by their numbers.

    ``path`` is a LeRobotDataset v3 folder, or an HDF5 file of LIBERO or ManiSkill. Anything else is a DatasetError.
    """
    place = _place(path)
    if place.suffix in HDF5_SUFFIXES:
        from rlinf.rollouts.robot_data.hdf5 import read_hdf5

        return read_hdf5(place, episodes)
    from rlinf.rollouts.robot_data.lerobot_reader import read_lerobot

    return read_lerobot(place, episodes)


def count_episodes(path: str | Path) -> int:
    """How many episodes the dataset at ``path`` has; little of it is read."""
    place = _place(path)
    if place.suffix in HDF5_SUFFIXES:
        from rlinf.rollouts.robot_data.hdf5 import episode_names

        return len(episode_names(place))
    from rlinf.rollouts.robot_data.lerobot_format import read_info

    return read_info(place).total_episodes


def dataset_instructions(path: str | Path) -> list[str]:
    """The different instructions of the dataset at ``path``."""
    place = _place(path)
    if place.suffix in HDF5_SUFFIXES:
        return list(read_dataset(place, [0]).instructions)
    from rlinf.rollouts.robot_data.lerobot_reader import read_tasks

    return read_tasks(place)


def dataset_statistics(path: str | Path) -> Statistics:
    """The normalisation statistics of the dataset at ``path``."""
    place = _place(path)
    if place.suffix in HDF5_SUFFIXES:
        return read_dataset(place).statistics
    from rlinf.rollouts.robot_data.lerobot_reader import read_statistics

    return read_statistics(place)


def _place(path: str | Path) -> Path:
    place = Path(path).expanduser()
    if place.is_file() and place.suffix in HDF5_SUFFIXES:
        return place
    if (place / "meta" / "info.json").is_file():
        return place
    wanted = "a LeRobotDataset v3 folder (with meta/info.json) or an HDF5 file (.hdf5, .h5) of LIBERO or ManiSkill"
    raise DatasetError(f"{place} is no robot dataset: {wanted} is needed")
