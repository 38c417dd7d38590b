"""Demonstrations in HDF5: LIBERO's files (`data/demo_0`, ...) and ManiSkill's (`traj_0`, ..., a JSON file beside them).

Columns are those of this project's environments of the two simulators. The only import of h5py.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rlinf.packages import install_command
from rlinf.rollouts.robot_data.dataset import ACTION, DONE, REWARD, SUCCESS, TERMINATED, DatasetError, RobotDataset
from rlinf.rollouts.robot_data.statistics import column_statistics

_LIBERO_HZ, _MANISKILL_HZ = 20.0, 20.0
_NUMBERED = re.compile(r"(demo|traj)_(\d+)")
# LIBERO's cameras, under the names that its environment here has. The files have them upside down.
_LIBERO_CAMERAS = {"agentview_rgb": "observation.image", "eye_in_hand_rgb": "observation.wrist_image"}


def episode_names(path: Path) -> list[str]:
    """The groups of a file's episodes, by their numbers."""
    with _opened(path) as file:
        return _names(file, path)


def read_hdf5(path: Path, episodes: Sequence[int] | None = None) -> RobotDataset:
    """All episodes of a file, or those that stand at the places ``episodes`` among them."""
    with _opened(path) as file:
        names = _names(file, path)
        try:
            chosen = names if episodes is None else [names[place] for place in sorted(set(episodes))]
        except IndexError as error:
            raise DatasetError(f"{path} has {len(names)} episodes, not {max(episodes or ())}") from error
        libero = "data" in file
        read = _libero_episode if libero else _maniskill_episode
        parts = [read(file["data"][name] if libero else file[name], f"{path}: {name}") for name in chosen]
        instruction = _libero_instruction(file["data"]) if libero else _maniskill_instruction(path)
    columns = {name: np.concatenate([part[0][name] for part in parts]) for name in parts[0][0]}
    pictures = {name for name, values in columns.items() if values.dtype == np.uint8 and values.ndim == 4}
    return RobotDataset(
        path=path,
        columns=columns,
        lengths=np.array([len(part[0][ACTION]) for part in parts], dtype=np.int64),
        instructions=[instruction],
        task_index=np.zeros(len(columns[ACTION]), dtype=np.int64),
        fps=_LIBERO_HZ if libero else _MANISKILL_HZ,
        statistics={name: column_statistics(values, pictures=name in pictures) for name, values in columns.items()},
        finals={name: np.stack([part[1][name] for part in parts]) for name in parts[0][1]},
    )


def _opened(path: Path) -> Any:
    try:
        import h5py
    except ImportError as error:
        raise DatasetError(f"{path}: reading HDF5 needs h5py: {install_command('hdf5')}") from error
    try:
        return h5py.File(path, "r")
    except OSError as error:
        raise DatasetError(f"{path} is no HDF5 file: {error}") from error


def _names(file: Any, path: Path) -> list[str]:
    found = [match for name in file.get("data", file) if (match := _NUMBERED.fullmatch(name))]
    if not found:
        raise DatasetError(f"{path} has neither data/demo_0 (LIBERO) nor traj_0 (ManiSkill)")
    return [match[0] for match in sorted(found, key=lambda match: int(match[2]))]


_EpisodeParts = tuple[dict[str, np.ndarray], dict[str, np.ndarray]]
"""Columns [T, ...], and observations [...] after the last action."""


def _libero_episode(group: Any, place: str) -> _EpisodeParts:
    observed = _required(group, "obs", place)
    columns = {
        leaf: np.ascontiguousarray(observed[camera][:][:, ::-1])
        for camera, leaf in _LIBERO_CAMERAS.items()
        if camera in observed
    }
    position, turn = np.split(np.asarray(_required(observed, "ee_states", place)), [3], axis=1)
    grip = np.asarray(_required(observed, "gripper_states", place))
    columns["observation.state"] = np.concatenate([position, _quaternions(turn), grip], axis=1).astype(np.float32)
    columns[ACTION] = np.asarray(_required(group, "actions", place), dtype=np.float32)
    done = np.asarray(_required(group, "dones", place)).astype(bool)
    columns[REWARD] = np.asarray(group.get("rewards", done), dtype=np.float32)
    # LIBERO's demonstrations end in success, which ends its episodes too.
    columns |= {DONE: done, TERMINATED: done, SUCCESS: done}
    return columns, {}


def _quaternions(turns: np.ndarray) -> np.ndarray:
    """Rotation vectors [T, 3] as quaternions x, y, z, w [T, 4]."""
    angle = np.linalg.norm(turns, axis=1, keepdims=True)
    axis = np.divide(turns, angle, out=np.zeros_like(turns), where=angle > 0)
    return np.concatenate([axis * np.sin(angle / 2), np.cos(angle / 2)], axis=1)


def _libero_instruction(data: Any) -> str:
    try:
        return str(json.loads(data.attrs["problem_info"])["language_instruction"]).strip('"')
    except (KeyError, ValueError):
        return ""


def _maniskill_episode(group: Any, place: str) -> _EpisodeParts:
    actions = np.asarray(_required(group, "actions", place), dtype=np.float32)
    steps = len(actions)
    seen = _maniskill_observations(_required(group, "obs", place), place)
    columns = {name: values[:steps] for name, values in seen.items()}
    columns[ACTION] = actions
    ends = {name: np.asarray(group[name]).astype(bool) for name in ("terminated", "truncated") if name in group}
    done = np.zeros(steps, dtype=bool)
    done[-1] = True
    success = np.asarray(group["success"]).astype(bool) if "success" in group else done
    columns |= {DONE: done, SUCCESS: success, TERMINATED: ends.get("terminated", success & done)}
    columns[REWARD] = np.asarray(group.get("rewards", success), dtype=np.float32)
    return columns, {name: values[steps] for name, values in seen.items() if len(values) > steps}


def _maniskill_observations(obs: Any, place: str) -> dict[str, np.ndarray]:
    """[T + 1, ...]: the state as one vector, or the pictures of each camera and what the robot knows of itself."""
    if not hasattr(obs, "keys"):
        return {"observation": np.asarray(obs, dtype=np.float32)}
    parts = [leaf for name in ("agent", "extra") if name in obs for leaf in _vectors(obs[name])]
    if not parts:
        raise DatasetError(f"{place}: obs has neither agent nor extra, the two parts of the state")
    found = {"observation.state": np.concatenate(parts, axis=1)}
    cameras = obs.get("sensor_data", {})
    for name in cameras:
        if "rgb" in cameras[name]:
            leaf = "observation.image" if len(cameras) == 1 else f"observation.{name}"
            found[leaf] = np.asarray(cameras[name]["rgb"], dtype=np.uint8)
    return found


def _vectors(part: Any) -> list[np.ndarray]:
    if hasattr(part, "keys"):
        return [leaf for name in part for leaf in _vectors(part[name])]
    return [np.asarray(part, dtype=np.float32).reshape(len(part), -1)]


def _maniskill_instruction(path: Path) -> str:
    """The task's name in words, from the JSON file beside the HDF5 file."""
    described = path.with_suffix(".json")
    try:
        task = str(json.loads(described.read_text(encoding="utf-8"))["env_info"]["env_id"])
    except (OSError, ValueError, KeyError):
        return ""
    return " ".join(re.findall(r"[A-Z][a-z]+|\d+", task.partition("-")[0])).lower()


def _required(group: Mapping[str, Any], name: str, place: str) -> Any:
    if name not in group:
        raise DatasetError(
            f"{place} has no {name!r}, only {', '.join(group)}: replay the trajectories with observations"
        )
    return group[name]
