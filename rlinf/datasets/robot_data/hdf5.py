"""Demonstrations in HDF5: LIBERO's files (`data/demo_0`, ...) and ManiSkill's (`traj_0`, ..., with a JSON file).

The JSON file is in the same folder. Columns are those of this project's environments of the two simulators.
The only import of h5py.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rlinf.base.hdf5_split import file_and_split
from rlinf.base.packages import install_command
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
from rlinf.datasets.robot_data.statistics import column_statistics

HDF5_HZ = 20.0
"""Frames of a second of both simulators, whose files do not store it."""
_NUMBERED = re.compile(r"(demo|traj)_(\d+)")
# LIBERO's cameras, under the names that its environment here has. The files have them upside down.
_LIBERO_CAMERAS = {"agentview_rgb": "observation.image", "eye_in_hand_rgb": "observation.wrist_image"}
_LIBERO_STATES = ("ee_states", "gripper_states")
EpisodeParts = tuple[dict[str, np.ndarray], dict[str, np.ndarray]]
"""Columns [T, ...], and observations [...] after the last action."""


def episode_names(path: Path) -> list[str]:
    """List the groups of a file's episodes, or of its split, by their numbers."""
    with open_hdf5(path) as file:
        return _names(file, path)


def read_hdf5(path: Path, episodes: Sequence[int] | None = None) -> RobotDataset:
    """All episodes of a file (or split), or those at the positions ``episodes`` in the order of their numbers.

    Raises DatasetError for an episode without a column, or with one of another length or shape.
    """
    with open_hdf5(path) as file:
        chosen = chosen_episodes(_names(file, path), episodes, path)
        libero = "data" in file
        read = _libero_episode if libero else _maniskill_episode
        parts = []
        for name in chosen:
            try:
                parts.append(read(file["data"][name] if libero else file[name], f"{path}: {name}"))
            except (AttributeError, IndexError, KeyError, OSError, TypeError, ValueError) as error:
                # A group instead of an array, or an array instead of a group.
                kind = "LIBERO" if libero else "ManiSkill"
                raise DatasetError(f"{path}: {name} is not an episode of {kind}: {error}") from error
        instruction = _libero_instruction(file["data"]) if libero else _maniskill_instruction(path)
    if libero:
        # Further observations that an episode is without go: no environment here needs them.
        usual = {*_LIBERO_CAMERAS.values(), "observation.state"}
        for name in {name for columns, _ in parts for name in columns if name.startswith("observation.")} - usual:
            if any(name not in columns for columns, _ in parts):
                for columns, _ in parts:
                    columns.pop(name, None)
    origins = [f"{path}: {name}" for name in chosen]
    return joined_episodes(path, parts, origins, HDF5_HZ, [instruction])


def chosen_episodes(names: Sequence[str], episodes: Sequence[int] | None, path: Path) -> list[str]:
    """Select the ``names`` at the positions ``episodes``, or all. Raises DatasetError for a position without one."""
    numbers = range(len(names)) if episodes is None else sorted(set(episodes))
    if not numbers or numbers[0] < 0 or numbers[-1] >= len(names):
        raise DatasetError(f"{path} has the episodes 0 to {len(names) - 1}, not {list(episodes or ())}")
    return [names[number] for number in numbers]


def joined_episodes(
    path: Path,
    parts: Sequence[EpisodeParts],
    origins: Sequence[str],
    fps: float,
    instructions: Sequence[str],
    task_index: np.ndarray | None = None,
) -> RobotDataset:
    """Join episodes end to end; ``task_index`` [N] is each frame's entry of ``instructions`` (None: the first).

    Raises DatasetError for columns of unequal length in an episode, and for episodes with other columns.
    """
    _require_alike(parts, origins)
    columns = {name: np.concatenate([part[0][name] for part in parts]) for name in parts[0][0]}
    kept = [name for name in parts[0][1] if all(name in part[1] for part in parts)]
    pictures = {name for name, values in columns.items() if values.dtype == np.uint8 and values.ndim == 4}
    return RobotDataset(
        path=path,
        columns=columns,
        lengths=np.array([len(part[0][ACTION]) for part in parts], dtype=np.int64),
        instructions=instructions,
        task_index=np.zeros(len(columns[ACTION]), dtype=np.int64) if task_index is None else task_index,
        fps=fps,
        statistics={name: column_statistics(values, pictures=name in pictures) for name, values in columns.items()},
        finals={name: np.stack([part[1][name] for part in parts]) for name in kept},
        origins=origins,
    )


def _require_alike(parts: Sequence[EpisodeParts], locations: Sequence[str]) -> None:
    """Raise DatasetError for columns of unequal length in an episode, and for episodes with other columns."""
    first = parts[0][0]
    for (columns, _), location in zip(parts, locations, strict=True):
        steps = len(columns[ACTION])
        if not steps:
            raise DatasetError(f"{location} has no actions. Take the episode out of the file")
        for name in {**first, **columns}:
            if name not in columns or name not in first:
                has, other = (location, locations[0]) if name in columns else (locations[0], location)
                raise DatasetError(f"{other} has no {name}, and {has} has it. All episodes need the same columns")
            values = columns[name]
            if len(values) != steps:
                raise DatasetError(f"{location}: {name} has {len(values)} frames for {steps} actions")
            if values.shape[1:] != first[name].shape[1:]:
                raise DatasetError(
                    f"{location}: {name} is {list(values.shape[1:])} a frame, and {list(first[name].shape[1:])} in "
                    f"{locations[0]}"
                )


def open_hdf5(path: Path) -> Any:
    """Open a file to read it. Raises DatasetError without h5py, and for a file that is none."""
    try:
        import h5py
    except ImportError as error:
        raise DatasetError(f"{path}: reading HDF5 needs h5py: {install_command('hdf5')}") from error
    try:
        return h5py.File(file_and_split(path)[0], "r")
    except OSError as error:
        raise DatasetError(f"{path} is no HDF5 file: {error}") from error


def _names(file: Any, path: Path) -> list[str]:
    results = [match for name in file.get("data", file) if (match := _NUMBERED.fullmatch(name))]
    if not results:
        raise DatasetError(f"{path} has neither data/demo_0 (LIBERO) nor traj_0 (ManiSkill)")
    names = [match[0] for match in sorted(results, key=lambda match: int(match[2]))]
    split = file_and_split(path)[1]
    if not split:
        return names
    masks = file.get("mask", {})
    if split not in masks:
        raise DatasetError(f"{path}: the file has no split mask/{split}, but {', '.join(masks) or 'none at all'}")
    chosen = {name.decode() if isinstance(name, bytes) else str(name) for name in masks[split][:]}
    if not chosen or not chosen <= set(names):
        lost = ", ".join(sorted(chosen - set(names))) or "no episode"
        raise DatasetError(f"{path}: mask/{split} names {lost}, and the file has {names[0]} to {names[-1]}")
    return [name for name in names if name in chosen]


def _libero_episode(group: Any, location: str) -> EpisodeParts:
    observed = _required(group, "obs", location)
    columns = {
        leaf: np.ascontiguousarray(observed[camera][:][:, ::-1])
        for camera, leaf in _LIBERO_CAMERAS.items()
        if camera in observed
    }
    if "ee_states" not in observed:
        raise DatasetError(
            f"{location} has no 'ee_states' in obs, only {', '.join(observed)}. Of robomimic's layout LIBERO's "
            "files are read: write others as a LeRobotDataset v3 folder"
        )
    columns |= _further_observations(observed)
    position, turn = np.split(np.asarray(observed["ee_states"]), [3], axis=1)
    grip = np.asarray(_required(observed, "gripper_states", location))
    # Rotation vectors [T, 3] as quaternions x, y, z, w [T, 4].
    angle = np.linalg.norm(turn, axis=1, keepdims=True)
    axis = np.divide(turn, angle, out=np.zeros_like(turn), where=angle > 0)
    columns["observation.state"] = np.concatenate(
        [position, np.concatenate([axis * np.sin(angle / 2), np.cos(angle / 2)], axis=1), grip], axis=1
    ).astype(np.float32)
    columns[ACTION] = np.asarray(_required(group, "actions", location), dtype=np.float32)
    done = np.asarray(_required(group, "dones", location)).astype(bool).reshape(-1)
    columns |= {DONE: done, REWARD: np.asarray(group.get("rewards", done), dtype=np.float32).reshape(-1)}
    if "rewards" in group:
        # Success gives LIBERO's only reward and ends its episodes; an end without it is that of a time limit.
        columns[SUCCESS] = columns[REWARD] > 0
    return columns, {}


def _further_observations(observed: Any) -> dict[str, np.ndarray]:
    """Read the observations of LIBERO's or one's own that no environment here has, for `sft.rename` to name."""
    results = {}
    for name in observed:
        if name in _LIBERO_CAMERAS or name in _LIBERO_STATES or not hasattr(observed[name], "dtype"):
            continue
        values = np.asarray(observed[name])
        if values.dtype == np.uint8 and values.ndim == 4:
            results[f"observation.{name}"] = np.ascontiguousarray(values[:, ::-1])
        elif values.dtype.kind in "fiub":
            results[f"observation.{name}"] = values.astype(np.float32)
    return results


def _libero_instruction(data: Any) -> str:
    try:
        return str(json.loads(data.attrs["problem_info"])["language_instruction"]).strip('"')
    except (KeyError, ValueError):
        return ""


def _maniskill_episode(group: Any, location: str) -> EpisodeParts:
    actions = np.asarray(_required(group, "actions", location), dtype=np.float32)
    steps = len(actions)
    seen = _maniskill_observations(_required(group, "obs", location), location)
    columns = {name: values[:steps] for name, values in seen.items()}
    columns[ACTION] = actions
    done = np.arange(steps) == steps - 1
    columns[DONE] = done
    for name, column in (("terminated", TERMINATED), ("truncated", TRUNCATED), ("success", SUCCESS)):
        if name in group:
            columns[column] = np.asarray(group[name]).astype(bool)
    columns[REWARD] = np.asarray(group.get("rewards", columns.get(SUCCESS, done)), dtype=np.float32)
    return columns, {name: values[steps] for name, values in seen.items() if len(values) > steps}


def _maniskill_observations(obs: Any, location: str) -> dict[str, np.ndarray]:
    """[T + 1, ...]: the state as one vector, or the pictures of each camera and the robot's own state."""
    if not hasattr(obs, "keys"):
        return {"observation": np.asarray(obs, dtype=np.float32)}
    parts = [leaf for name in ("agent", "extra") if name in obs for leaf in _vectors(obs[name])]
    if not parts:
        raise DatasetError(f"{location}: obs has neither agent nor extra, the two parts of the state")
    results = {"observation.state": np.concatenate(parts, axis=1)}
    cameras = obs.get("sensor_data", {})
    for name in cameras:
        if "rgb" in cameras[name]:
            leaf = "observation.image" if len(cameras) == 1 else f"observation.{name}"
            results[leaf] = np.asarray(cameras[name]["rgb"], dtype=np.uint8)
    return results


def _vectors(part: Any) -> list[np.ndarray]:
    if hasattr(part, "keys"):
        return [leaf for name in part for leaf in _vectors(part[name])]
    return [np.asarray(part, dtype=np.float32).reshape(len(part), -1)]


def _maniskill_instruction(path: Path) -> str:
    """Return the task's name in words, from the JSON file next to the HDF5 file."""
    described = file_and_split(path)[0].with_suffix(".json")
    try:
        task = str(json.loads(described.read_text(encoding="utf-8"))["env_info"]["env_id"])
    except (OSError, ValueError, KeyError):
        return ""
    return " ".join(re.findall(r"[A-Z][a-z]+|\d+", task.partition("-")[0])).lower()


def _required(group: Mapping[str, Any], name: str, location: str) -> Any:
    if name not in group:
        raise DatasetError(
            f"{location} has no {name!r}, only {', '.join(group)}: replay the trajectories with observations"
        )
    return group[name]
