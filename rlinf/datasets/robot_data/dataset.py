"""Recorded episodes in memory, whichever format they come from.

N frames of E episodes lie end to end. Columns have LeRobot's names: ``observation.state``,
``observation.images.<name>`` (uint8 [H, W, 3]), ``action``. If they were recorded, there are also
``next.reward``, ``next.done``, ``next.terminated``, ``next.truncated``, ``next.success`` and ``demonstrated``
(false for the random actions of a perturbed demonstrator).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from rlinf.base.errors import UserError
from rlinf.data.spaces import Arrays, exactly

ACTION, REWARD, DONE, TERMINATED, TRUNCATED, SUCCESS, DEMONSTRATED = (
    "action",
    "next.reward",
    "next.done",
    "next.terminated",
    "next.truncated",
    "next.success",
    "demonstrated",
)
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
    """[N] int64: each frame's index in ``instructions``."""
    fps: float
    """Frames of a second; 0 in formats without a rate."""
    statistics: Statistics
    """Of the whole dataset."""
    finals: Mapping[str, np.ndarray] = field(default_factory=dict)
    """[E, ...] observations after the last action, in formats that keep them."""
    origins: Sequence[str] = ()
    """[E] file and episode of each, for messages; empty: the dataset's path and the episode's position."""
    unusable: Mapping[str, str] = field(default_factory=dict)
    """Columns that the dataset declares and that cannot be read, with the reason; an error if one of them is used."""

    @property
    def num_frames(self) -> int:
        return int(self.lengths.sum())

    def column(self, name: str, used_for: str) -> np.ndarray:
        """Return the column [N, ...]. Raises DatasetError, with its ``used_for``, if it is absent or unusable."""
        if name in self.columns:
            return self.columns[name]
        if name in self.unusable:
            raise DatasetError(f"{self.path}: {name}, {used_for}, cannot be used: {self.unusable[name]}")
        raise DatasetError(f"{self.path} has no column {name}, {used_for}, only {', '.join(self.columns)}")

    def flags(self, name: str, used_for: str) -> np.ndarray:
        """Return a column of flags, bool [N]. Raises DatasetError if it is absent, or holds something else than flags.

        Flags may be kept as 0 and 1; texts such as "False" would all be true.
        """
        values = self.column(name, used_for)
        try:
            return exactly(values, np.dtype(bool), name).reshape(self.num_frames)
        except ValueError as error:
            raise DatasetError(f"{self.path}: {name}, {used_for}, is no column of flags: {error}") from error

    def location(self, frame: int) -> str:
        """File, episode and frame (counted from 0 in its episode) of row ``frame``, for messages."""
        origins = self.origins or [f"{self.path}: episode {number}" for number in range(len(self.lengths))]
        return frame_location(origins, self.lengths, frame)

    def episodes(self) -> Iterator[range]:
        """Yield the frames of each episode."""
        edges = np.concatenate([[0], np.cumsum(self.lengths)]).tolist()
        return (range(first, last) for first, last in itertools.pairwise(edges))


def frame_location(origins: Sequence[str], lengths: np.ndarray, row: int) -> str:
    """Describe the origin of row ``row`` among episodes of these ``lengths`` [E], and its position there."""
    edges = np.cumsum(lengths)
    episode = int(np.searchsorted(edges, row, side="right"))
    return f"{origins[episode]}, frame {row - int(edges[episode] - lengths[episode])}"


@dataclass(frozen=True)
class RecordedEpisode:
    """One episode of T steps, as it is recorded."""

    columns: Arrays
    """[T, ...] by the dataset's names; without what a format adds (indices, timestamps)."""
    instruction: str

    @property
    def length(self) -> int:
        return len(self.columns[ACTION])
