"""Which recorded frames were better than expected: returns of outcomes, advantages, and the labels next to a dataset.

As in RECAP (pi*0.6, Physical Intelligence 2025, arXiv:2511.14759): a step costs 1 until success, a failed episode costs
as much as the longest one, and returns lie in [-1, 0]. Labels are a file of their own: the dataset stays as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rlinf.base.hdf5_split import file_and_split
from rlinf.datasets.robot_data.dataset import SUCCESS, DatasetError, RobotDataset

_FILE = "advantages.npz"


@dataclass(frozen=True)
class Labels:
    """What is known of each frame of a whole dataset."""

    lengths: np.ndarray
    """[E] int64: frames of each episode."""
    values: np.ndarray
    """[N] expected returns."""
    advantages: np.ndarray
    """[N]."""
    positive: np.ndarray
    """[N] bool: to be imitated as what is wanted."""


def succeeded(dataset: RobotDataset) -> np.ndarray:
    """Return whether each episode [E] had success. Raises DatasetError without the column of success."""
    flags = dataset.flags(SUCCESS, "which shows whether an episode had success")
    return np.array([bool(flags[episode.start : episode.stop].any()) for episode in dataset.episodes()])


def outcome_returns(lengths: np.ndarray, success: np.ndarray) -> np.ndarray:
    """Compute what follows from each frame on [N], in [-1, 0]: -(steps to success) / (longest episode), or -1.

    >>> outcome_returns(np.array([2, 4]), np.array([True, False])).tolist()
    [-0.5, -0.25, -1.0, -1.0, -1.0, -1.0]
    """
    longest = int(lengths.max())
    parts = [
        -np.arange(length, 0, -1) / longest if good else -np.ones(length)
        for length, good in zip(lengths, success, strict=True)
    ]
    return np.concatenate(parts)


def outcome_advantages(returns: np.ndarray, values: np.ndarray, lengths: np.ndarray, lookahead: int = 0) -> np.ndarray:
    """Compute R_t - V_t [N]; with ``lookahead`` n > 0, -n / longest + V_t+n - V_t where the episode goes on so far.

    Returns of episodes of 1 and 2 steps, values -0.5; one step ahead the second begins with -0.5 - 0.5 + 0.5:

    >>> r, v = np.array([-0.5, -1.0, -0.5]), np.full(3, -0.5)
    >>> outcome_advantages(r, v, np.array([1, 2])).tolist(), outcome_advantages(r, v, np.array([1, 2]), 1).tolist()
    ([0.0, -0.5, 0.0], [0.0, -0.5, 0.0])
    """
    ahead = returns.astype(np.float64).copy()
    longest, first = int(lengths.max()), 0
    for length in lengths.tolist():
        if 0 < lookahead < length:
            later = values[first + lookahead : first + length]
            ahead[first : first + length - lookahead] = later - lookahead / longest
        first += length
    return ahead - values


def most_positive(advantages: np.ndarray, share: float) -> np.ndarray:
    """Return which frames [N] have the ``share`` largest advantages, and are above the smallest of all.

    >>> most_positive(np.array([0.3, -0.1, 0.0, 0.2]), 0.5).tolist()
    [True, False, False, True]
    """
    return advantages > np.quantile(advantages, 1.0 - share)


def labels_file(path: str | Path) -> Path:
    """Return where the labels of the dataset at ``path`` are: in a folder or its `meta`, or next to a file."""
    location = Path(path).expanduser()
    if file_and_split(location)[0].is_file():  # each split has its own
        return location.with_name(f"{location.name if '#' in location.name else location.stem}.{_FILE}")
    return (location / "meta" if (location / "meta").is_dir() else location) / _FILE


def write_labels(path: str | Path, labels: Labels) -> Path:
    """Write the labels of the dataset at ``path``; return their file."""
    file = labels_file(path)
    with file.open("wb") as opened:
        np.savez(opened, **vars(labels))
    return file


def read_labels(path: str | Path) -> Labels:
    """Read the labels of the dataset at ``path``. Raises DatasetError if it has none."""
    file = labels_file(path)
    if not file.exists():
        raise DatasetError(
            f"{path} has no labels of which frames were better than expected ({file}), and policy.flow.advantage reads "
            f"them: rlinf label FILE --data {path} makes them"
        )
    with np.load(file) as archive:
        return Labels(**{name: archive[name] for name in ("lengths", "values", "advantages", "positive")})


def positive_frames(path: str | Path, episodes: Sequence[int], lengths: np.ndarray) -> np.ndarray:
    """Read which frames of some ``episodes`` (positions, sorted here) of ``lengths`` are positive, [N] bool.

    Raises DatasetError without labels, or if they are of other episodes.
    """
    labels, chosen = read_labels(path), sorted(set(episodes))
    if chosen[-1] >= len(labels.lengths) or labels.lengths[chosen].tolist() != lengths.tolist():
        raise DatasetError(f"{labels_file(path)} is of other episodes than {path} has now: run rlinf label again")
    edges = np.concatenate([[0], np.cumsum(labels.lengths)])
    return np.concatenate([labels.positive[edges[number] : edges[number + 1]] for number in chosen])
