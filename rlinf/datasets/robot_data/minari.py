"""Reads Minari's datasets, gymnasium's standard for offline reinforcement learning: `NAME/data/main_data.hdf5`.

Source: Minari 0.5's dataset standards, https://minari.farama.org/content/dataset_standards. Each group `episode_N` has
T `actions`, `rewards`, `terminations` and `truncations`, and T + 1 `observations`: the last one follows the last
action.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rlinf.data.spaces import ROOT
from rlinf.datasets.robot_data.dataset import (
    ACTION,
    DONE,
    REWARD,
    SUCCESS,
    TERMINATED,
    TRUNCATED,
    DatasetError,
    RobotDataset,
)
from rlinf.datasets.robot_data.hdf5 import EpisodeParts, chosen_episodes, joined_episodes, open_hdf5
from rlinf.datasets.robot_data.pictures import decode_picture

MINARI_FILE = "main_data.hdf5"
UNKNOWN_RATE = 0.0
"""Frames of a second: the format has no field for them."""
_METADATA = "metadata.json"
_JPEG = np.array([0xFF, 0xD8, 0xFF], dtype=np.uint8)
"""The beginning of a JPEG file."""
_EPISODE = re.compile(r"episode_(\d+)")
_MEMBER = re.compile(r"_index_(\d+)")
"""The group of an entry of a Tuple space."""
_SUCCESS_KEYS = ("success", "is_success")
_STEPS = {"rewards": REWARD, "terminations": TERMINATED, "truncations": TRUNCATED}


def is_minari(location: Path) -> bool:
    """Whether a folder is a Minari dataset (with `data` in it), or a file one's `main_data.hdf5`."""
    if location.name == MINARI_FILE:
        return location.is_file()
    return any((location / "data" / name).is_file() for name in (MINARI_FILE, _METADATA))


def read_minari(location: Path, episodes: Sequence[int] | None = None) -> RobotDataset:
    """Read all episodes of a dataset, or those at the positions ``episodes`` in the order of their numbers.

    Parts of Dict and Tuple observations are the columns ``observation.KEY`` and ``observation.0``; a text is the
    instruction. Raises DatasetError that names file, episode and entry for what is missing, damaged or unequal.
    """
    file = _file(location)
    parts: list[EpisodeParts] = []
    texts: list[Sequence[str]] = []
    with open_hdf5(file) as opened:
        chosen = chosen_episodes(_names(opened, location), episodes, file)
        for name in chosen:
            try:
                part, instructions = _episode(opened[name], f"{file}: {name}")
            except (AttributeError, IndexError, KeyError, OSError, TypeError, ValueError) as error:
                # A group where an array is due, or a chunk that was cut off.
                raise DatasetError(f"{file}: {name} is not an episode of Minari: {error}") from error
            parts.append(part)
            texts.append(instructions)
    numbers: dict[str, int] = {}
    index = [numbers.setdefault(text, len(numbers)) for episode_texts in texts for text in episode_texts]
    return joined_episodes(
        location, parts, [f"{file}: {name}" for name in chosen], UNKNOWN_RATE, list(numbers), np.array(index, np.int64)
    )


def minari_episodes(location: Path) -> list[str]:
    """List the groups of a dataset's episodes, by their numbers."""
    with open_hdf5(_file(location)) as opened:
        return _names(opened, location)


def _file(location: Path) -> Path:
    """Return the HDF5 file of a dataset. Raises DatasetError for Minari's other format, and for a damaged header."""
    if location.name == MINARI_FILE:
        return location
    file = location / "data" / MINARI_FILE
    kind = _metadata(file).get("data_format", "hdf5")
    if kind != "hdf5":
        raise DatasetError(
            f"{file.with_name(_METADATA)}: data_format is {kind!r}, and hdf5 is read here. Minari writes it again: "
            "DataCollector(env, data_format='hdf5')"
        )
    if not file.is_file():
        raise DatasetError(f"{file} is missing, the episodes of the Minari dataset {location}. Download it again")
    return file


def _metadata(file: Path) -> dict[str, Any]:
    """Read the header next to a file; empty without one, as before Minari 0.5."""
    path = file.with_name(_METADATA)
    if not path.exists():
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DatasetError(f"{path} is no header of a Minari dataset: {error}") from error
    if not isinstance(content, dict):
        raise DatasetError(f"{path} is no header of a Minari dataset: it holds {type(content).__name__}, not a mapping")
    return content


def _names(opened: Any, location: Path) -> list[str]:
    """List the episodes' groups. Raises DatasetError if there are none, or fewer than the header counts."""
    matches = sorted((match for name in opened if (match := _EPISODE.fullmatch(name))), key=lambda match: int(match[1]))
    file = Path(opened.filename)
    if not matches:
        raise DatasetError(f"{file} has no group episode_0: it is no Minari dataset, or one without an episode")
    counted = _metadata(file).get("total_episodes", opened.attrs.get("total_episodes", len(matches)))
    if len(matches) < int(counted):
        present = {match[0] for match in matches}
        missing = next(name for number in range(int(counted)) if (name := f"episode_{number}") not in present)
        raise DatasetError(
            f"{file} has {len(matches)} episodes, and {_METADATA} of {location} counts {counted}: {missing} is "
            "missing. Download the dataset again, or write it whole"
        )
    return [match[0] for match in matches]


def _episode(group: Any, location: str) -> tuple[EpisodeParts, Sequence[str]]:
    """Read an episode: its columns, what follows its last action, and the text of each of its steps."""
    for name in ("observations", "actions", *_STEPS):
        if name not in group:
            raise DatasetError(f"{location} has no {name!r}, only {', '.join(group)}")
    if hasattr(group["actions"], "keys"):
        raise DatasetError(
            f"{location}: actions have the parts {', '.join(group['actions'])}, and a policy here has one array of "
            "actions. Flatten them (a Box or MultiDiscrete) and write the dataset again"
        )
    columns: dict[str, np.ndarray] = {ACTION: group["actions"][()]}
    steps = len(columns[ACTION])
    for name, column in _STEPS.items():
        columns[column] = group[name][()].reshape(-1)
    for column in (TERMINATED, TRUNCATED):
        columns[column] = columns[column].astype(bool)
    columns[DONE] = columns[TERMINATED] | columns[TRUNCATED]
    early = np.flatnonzero(columns[DONE][:-1])
    if len(early) and len(columns[DONE]) == steps:
        raise DatasetError(
            f"{location} goes on after its end: terminations or truncations are true at step {early[0]} of {steps}. "
            "Write what follows as an episode of its own"
        )
    finals, texts = {}, dict[str, list[str]]()
    for leaf, values in _leaves(group["observations"], ROOT):
        if len(values) != steps + 1:
            raise DatasetError(
                f"{location}: {leaf} has {len(values)} entries for {steps} actions. {steps + 1} are needed: one before "
                "each action, and one after the last. Some episodes of early releases lack one: take a newer version "
                "of the dataset (-v1, -v2), or the episode out"
            )
        if _is_jpeg(values):
            files = enumerate(values)
            values = np.stack([decode_picture(f.tobytes(), f"{location}: {leaf}, {n}", colour=False) for n, f in files])
        if values.dtype.kind == "O":
            texts[leaf] = [text.decode() if isinstance(text, bytes) else str(text) for text in values[:steps]]
        else:
            columns[leaf], finals[leaf] = values[:steps], values[steps]
    if len(texts) > 1:
        raise DatasetError(f"{location} has the texts {', '.join(texts)}, and one is read: the instruction")
    infos = group.get("infos")
    for key in _SUCCESS_KEYS:
        if hasattr(infos, "keys") and key in infos and np.ndim(infos[key]) == 1 and len(infos[key]) >= steps:
            # Of the infos the first may be that of the reset.
            columns[SUCCESS] = infos[key][()][-steps:].astype(bool)
            break
    return (columns, finals), next(iter(texts.values()), [""] * steps)


def _is_jpeg(values: np.ndarray) -> bool:
    """Whether the entries of an array are JPEG files, as Minari 0.5.4 stores pictures of 32 pixels a side and more.

    Files of different sizes are arrays of their own; of equal sizes they are rows of one array.
    """
    if values.dtype.kind == "O":
        return len(values) > 0 and isinstance(values[0], np.ndarray) and values[0].dtype == np.uint8
    return values.dtype == np.uint8 and values.ndim == 2 and bool((values[:, : len(_JPEG)] == _JPEG).all())


def _leaves(node: Any, name: str) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the arrays [T + 1, ...] of observations, under the names of :mod:`rlinf.data.spaces`."""
    if not hasattr(node, "keys"):
        yield name, node[()]
        return
    for key in node:
        member = _MEMBER.fullmatch(key)
        yield from _leaves(node[key], f"{name}.{member[1] if member else key}")
