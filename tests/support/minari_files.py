"""Datasets in Minari's published layout, with numbers that are known."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

LENGTHS = {0: 3, 2: 2, 10: 4}
"""More than nine, so that episode_10 comes after episode_2."""


def write_into(group: Any, name: str, values: Any) -> None:
    """Write values as Minari lays out Dict, Tuple and Text spaces."""
    import h5py

    if isinstance(values, tuple):
        values = {f"_index_{index}": part for index, part in enumerate(values)}
    if isinstance(values, Mapping):
        inner = group.create_group(name)
        for key, part in values.items():
            write_into(inner, key, part)
    elif isinstance(values, list):
        group.create_dataset(name, data=values, dtype=h5py.string_dtype())
    else:
        group.create_dataset(name, data=values)


def two_numbers(number: int, steps: int) -> np.ndarray:
    """Observations [steps + 1, 2] of an episode: 100 times its number, and on."""
    return 100.0 * number + np.arange(2.0 * steps + 2).reshape(steps + 1, 2)


def minari_folder(
    root: Path,
    observe: Callable[[int, int], Any] = two_numbers,
    header: Mapping[str, Any] | None = None,
    action_scale: float = 1.0,
) -> Path:
    """Write three episodes: one to a time limit, one to a terminal state, another one to a time limit.

    ``observe(number, steps)`` makes the observations [steps + 1, ...]; actions are the episode's number.
    """
    import h5py

    (root / "data").mkdir(parents=True)
    with h5py.File(root / "data" / "main_data.hdf5", "w") as file:
        for number, steps in LENGTHS.items():
            group = file.create_group(f"episode_{number}")
            last = np.arange(steps) == steps - 1
            write_into(group, "observations", observe(number, steps))
            write_into(group, "actions", np.full((steps, 1), action_scale * number, np.float32))
            write_into(group, "rewards", np.arange(steps) + 0.1)
            write_into(group, "terminations", last & (number == 2))
            write_into(group, "truncations", last & (number != 2))
    written = {"total_episodes": 3, "total_steps": 9, "data_format": "hdf5"} if header is None else header
    (root / "data" / "metadata.json").write_text(json.dumps(written))
    return root
