"""LIBERO's and ManiSkill's demonstration files, in their published layouts."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from gymnasium import spaces

from rlinf.datasets.robot_data.dataset import DatasetError
from rlinf.datasets.robot_data.decisions import terminal_frames
from rlinf.datasets.robot_data.leaves import environment_actions, observation_arrays
from rlinf.datasets.robot_data.reading import (
    count_episodes,
    dataset_columns,
    dataset_instructions,
    dataset_stamp,
    is_dataset,
    read_dataset,
)

h5py = pytest.importorskip("h5py", reason="pip install 'oneloop-rl[robots]'")


def libero_file(path: Path, lengths: tuple[int, ...] = (4, 3)) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(0)
    kept = {}
    with h5py.File(path, "w") as file:
        data = file.create_group("data")
        data.attrs["problem_info"] = json.dumps({"language_instruction": '"pick up the soup"'})
        # More than nine, so that demo_10 comes after demo_2 and not before it.
        for number, length in zip((2, 10), lengths, strict=True):
            demo = data.create_group(f"demo_{number}")
            pictures = draw.integers(0, 255, size=(length, 8, 8, 3), dtype=np.uint8)
            demo["obs/agentview_rgb"], demo["obs/eye_in_hand_rgb"] = pictures, pictures[::-1]
            demo["obs/ee_states"] = np.tile([0.1, 0.2, 0.3, 0.0, np.pi / 2, 0.0], (length, 1))
            demo["obs/gripper_states"] = np.tile([0.04, -0.04], (length, 1))
            demo["actions"] = draw.uniform(-1, 1, size=(length, 7))
            demo["dones"] = demo["rewards"] = (np.arange(length) == length - 1).astype(np.uint8)
            kept[f"pictures_{number}"], kept[f"actions_{number}"] = pictures, demo["actions"][:]
    return kept


def test_libero_files_are_what_the_environment_observes(tmp_path: Path) -> None:
    kept = libero_file(tmp_path / "task.hdf5")
    found = read_dataset(tmp_path / "task.hdf5")
    assert found.lengths.tolist() == [4, 3]
    assert dataset_instructions(tmp_path / "task.hdf5") == ["pick up the soup"]
    image = spaces.Box(0, 255, (8, 8, 3), np.uint8)
    state = spaces.Box(-np.inf, np.inf, (9,), np.float32)
    names = {"image": image, "wrist_image": image, "state": state, "instruction": spaces.Text(32)}
    leaves = observation_arrays(found, spaces.Dict(names), {})
    assert np.array_equal(leaves["observation.image"][:4], kept["pictures_2"][:, ::-1])  # upright
    half = np.sqrt(0.5)
    assert leaves["observation.state"][0] == pytest.approx([0.1, 0.2, 0.3, 0, half, 0, half, 0.04, -0.04])
    assert bytes(leaves["observation.instruction"][6]).rstrip(b"\0") == b"pick up the soup"
    actions = environment_actions(found, spaces.Box(-1, 1, (7,), np.float32), {})
    assert actions == pytest.approx(np.concatenate([kept["actions_2"], kept["actions_10"]]))
    assert found.columns["next.reward"].tolist() == [0, 0, 0, 1, 0, 0, 1]
    assert read_dataset(tmp_path / "task.hdf5", [1]).lengths.tolist() == [3]
    assert found.statistics["action"]["mean"].shape == (7,)


def test_a_split_of_the_file_is_read_alone(tmp_path: Path) -> None:
    path = tmp_path / "task.hdf5"
    kept = libero_file(path)
    with h5py.File(path, "a") as file:
        file["mask/valid"] = np.array([b"demo_10"])
        file["mask/lost"] = np.array([b"demo_3"])
    assert is_dataset(f"{path}#valid")
    assert count_episodes(f"{path}#valid") == 1
    assert count_episodes(path) == 2
    found = read_dataset(f"{path}#valid")
    assert found.lengths.tolist() == [3]
    assert found.columns["action"] == pytest.approx(kept["actions_10"])
    assert dataset_stamp(Path(f"{path}#valid")) == dataset_stamp(path) != ""
    with pytest.raises(DatasetError, match="no split mask/train, but lost, valid"):
        read_dataset(f"{path}#train")
    with pytest.raises(DatasetError, match="mask/lost names demo_3"):
        read_dataset(f"{path}#lost")


def maniskill_file(path: Path, *, pictures: bool) -> None:
    draw = np.random.default_rng(1)
    with h5py.File(path, "w") as file:
        for number, steps in ((0, 3), (1, 2)):
            group = file.create_group(f"traj_{number}", track_order=True)
            if pictures:
                obs = group.create_group("obs", track_order=True)
                agent = obs.create_group("agent", track_order=True)
                agent["qpos"], agent["qvel"] = np.zeros((steps + 1, 2)), np.ones((steps + 1, 2))
                extra = obs.create_group("extra", track_order=True)
                extra["tcp_pose"], extra["is_grasped"] = np.full((steps + 1, 3), 2.0), np.ones(steps + 1, bool)
                obs["sensor_data/base_camera/rgb"] = draw.integers(0, 255, (steps + 1, 8, 8, 3), dtype=np.uint8)
            else:
                group["obs"] = np.arange((steps + 1) * 5, dtype=np.float32).reshape(steps + 1, 5)
            group["actions"] = draw.uniform(-1, 1, (steps, 4)).astype(np.float32)
            group["terminated"] = group["success"] = np.arange(steps) == steps - 1
            group["truncated"] = np.zeros(steps, bool)
    path.with_suffix(".json").write_text(json.dumps({"env_info": {"env_id": "PushCube-v1"}}))


def test_maniskill_files_keep_the_last_observation(tmp_path: Path) -> None:
    maniskill_file(tmp_path / "states.h5", pictures=False)
    found = read_dataset(tmp_path / "states.h5")
    assert (count_episodes(tmp_path / "states.h5"), found.lengths.tolist()) == (2, [3, 2])
    assert found.columns["observation"].shape == (5, 5)
    assert found.finals["observation"][:, 0].tolist() == [15.0, 10.0]
    assert found.columns["next.terminated"].tolist() == [False, False, True, False, True]
    assert found.instructions == ["push cube"]


def test_maniskill_pictures_and_robot_state(tmp_path: Path) -> None:
    maniskill_file(tmp_path / "rgb.h5", pictures=True)
    found = read_dataset(tmp_path / "rgb.h5")
    assert found.columns["observation.image"].shape == (5, 8, 8, 3)
    assert found.columns["observation.state"][0].tolist() == [0, 0, 1, 1, 2, 2, 2, 1]


def test_files_of_another_layout_are_reported(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["weights"] = np.zeros(3)
    with pytest.raises(DatasetError, match="neither data/demo_0"):
        read_dataset(tmp_path / "other.h5")
    with h5py.File(tmp_path / "bare.h5", "w") as file:
        file["traj_0/actions"] = np.zeros((2, 3))
    with pytest.raises(DatasetError, match="has no 'obs'"):
        read_dataset(tmp_path / "bare.h5")
    (tmp_path / "text.h5").write_text("no")
    with pytest.raises(DatasetError, match="no HDF5 file"):
        read_dataset(tmp_path / "text.h5")


def rewrite(path: Path, name: str, values: np.ndarray | None) -> None:
    """Replaces an array of a file, or takes it out."""
    with h5py.File(path, "a") as file:
        del file[name]
        if values is not None:
            file[name] = values


@pytest.mark.parametrize(
    ("name", "values", "words"),
    [
        ("data/demo_10/obs/ee_states", None, "demo_10 has no 'ee_states' in obs.*robomimic"),
        ("data/demo_10/obs/agentview_rgb", None, r"demo_10 has no observation\.image, and .*demo_2 has it"),
        ("data/demo_10/rewards", np.zeros(2), r"demo_10: next\.reward has 2 frames for 3 actions"),
        ("data/demo_10/actions", np.zeros((3, 6)), r"demo_10: action is \[6\] a frame, and \[7\] in .*demo_2"),
        ("data/demo_10/obs", np.zeros(3), "demo_10"),
        ("data/demo_10/actions", np.full((3, 7), np.nan), r"demo_10, frame 0: action\[0\] is NaN"),
    ],
)
def test_damaged_episodes_are_named(tmp_path: Path, name: str, values: np.ndarray | None, words: str) -> None:
    libero_file(tmp_path / "task.hdf5")
    rewrite(tmp_path / "task.hdf5", name, values)
    with pytest.raises(DatasetError, match=words):
        environment_actions(read_dataset(tmp_path / "task.hdf5"), spaces.Box(-1, 1, (7,), np.float32), {})


def test_only_success_is_a_terminal_state(tmp_path: Path) -> None:
    libero_file(tmp_path / "task.hdf5")
    rewrite(tmp_path / "task.hdf5", "data/demo_10/rewards", np.zeros(3))
    assert terminal_frames(read_dataset(tmp_path / "task.hdf5"))[0].tolist() == [False] * 3 + [True] + [False] * 3
    maniskill_file(tmp_path / "states.h5", pictures=False)
    for name in ("traj_0", "traj_1"):
        rewrite(tmp_path / "states.h5", f"{name}/terminated", None)
    rewrite(tmp_path / "states.h5", "traj_1/truncated", np.array([False, True]))
    found = read_dataset(tmp_path / "states.h5")
    assert terminal_frames(found)[0].tolist() == [False, False, True, False, False]


def test_observations_under_other_names_are_columns_to_rename(tmp_path: Path) -> None:
    path = tmp_path / "task.hdf5"
    kept = libero_file(path)
    with h5py.File(path, "a") as file:
        for number in (2, 10):
            obs = file[f"data/demo_{number}/obs"]
            obs["front_rgb"] = kept[f"pictures_{number}"]
            obs["joint_states"] = np.full((len(obs["front_rgb"]), 7), float(number))
        file["data/demo_10/obs/depth_of_one"] = np.zeros((3, 8, 8))
    found = read_dataset(path)
    assert "observation.front_rgb" in dataset_columns(path)
    assert "observation.depth_of_one" not in found.columns  # not in every episode
    names = {
        "camera": spaces.Box(0, 255, (8, 8, 3), np.uint8),
        "joints": spaces.Box(-np.inf, np.inf, (7,), np.float32),
    }
    rename = {"observation.camera": "observation.front_rgb", "observation.joints": "observation.joint_states"}
    leaves = observation_arrays(found, spaces.Dict(names), rename)
    assert np.array_equal(leaves["observation.camera"][:4], kept["pictures_2"][:, ::-1])  # upright
    assert leaves["observation.joints"][:, 0].tolist() == [2.0] * 4 + [10.0] * 3
    with pytest.raises(DatasetError, match=r"it observes .*front_rgb"):
        observation_arrays(found, spaces.Dict(names), {})


def test_an_observation_of_another_length_is_named(tmp_path: Path) -> None:
    libero_file(tmp_path / "task.hdf5")
    with h5py.File(tmp_path / "task.hdf5", "a") as file:
        for number in (2, 10):
            file[f"data/demo_{number}/obs/joint_states"] = np.zeros((9, 7))
    with pytest.raises(DatasetError, match=r"demo_2: observation\.joint_states has 9 frames for 4 actions"):
        read_dataset(tmp_path / "task.hdf5")
