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
