"""Normalisation statistics of recorded columns, with LeRobot's names and shapes.

Numbers have one value per entry of the column. Pictures have one per channel, [3, 1, 1], of pixels scaled to [0, 1] and
of a sample of frames and pixels, as LeRobot keeps them.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from rlinf.base.durable import write_atomically
from rlinf.datasets.robot_data.dataset import Statistics

QUANTILES = {"q01": 0.01, "q10": 0.10, "q50": 0.50, "q90": 0.90, "q99": 0.99}
STATISTICS_FILE = "dataset_statistics.json"
"""In a run directory and in an exported policy."""
_FRAMES, _SIDE = 8, 32
"""Statistics use at most this many frames of an episode, at most this many pixels a side."""


def sample_pictures(frames: np.ndarray) -> np.ndarray:
    """Sample some pixels [n, h, w, 3] of pictures [T, H, W, 3]."""
    chosen = np.unique(np.linspace(0, len(frames) - 1, min(_FRAMES, len(frames))).astype(int))
    down, across = (max(1, side // _SIDE) for side in frames.shape[1:3])
    return frames[chosen][:, ::down, ::across]


def column_statistics(values: np.ndarray, *, pictures: bool) -> dict[str, np.ndarray]:
    """Statistics of a column [N, ...]; of pictures [N, H, W, 3] per channel."""
    if pictures:
        flat, shape = values.reshape(-1, values.shape[-1]).astype(np.float64) / 255.0, (values.shape[-1], 1, 1)
    else:
        flat, shape = values.reshape(len(values), -1).astype(np.float64), values.shape[1:] or (1,)
    results = {
        "min": flat.min(0),
        "max": flat.max(0),
        "mean": flat.mean(0),
        "std": flat.std(0),
        **{name: np.quantile(flat, share, axis=0) for name, share in QUANTILES.items()},
    }
    return {**{name: value.reshape(shape) for name, value in results.items()}, "count": np.array([len(values)])}


def to_json(statistics: Statistics) -> dict[str, dict[str, object]]:
    """As nested lists."""
    return {name: {key: value.tolist() for key, value in part.items()} for name, part in statistics.items()}


def from_json(content: Mapping[str, Mapping[str, object]]) -> Statistics:
    """Statistics from the form that :func:`to_json` made."""
    return {
        name: {key: np.atleast_1d(np.array(value)) for key, value in part.items()} for name, part in content.items()
    }


def write_statistics(folder: Path, statistics: Statistics) -> None:
    """Write :data:`STATISTICS_FILE` into ``folder``."""
    write_atomically(folder / STATISTICS_FILE, json.dumps(to_json(statistics), indent=2))


def keep_statistics(run: Path, policy: Path) -> None:
    """Copy the statistics of a run's dataset, if it has one, into the folder of an exported policy."""
    if (run / STATISTICS_FILE).exists():
        shutil.copyfile(run / STATISTICS_FILE, policy / STATISTICS_FILE)
