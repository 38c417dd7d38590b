"""Minari's datasets, in their published layout; Minari itself writes them where there is an interpreter with it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from minari_files import LENGTHS, minari_folder, write_into

from rlinf.datasets.robot_data.dataset import DatasetError
from rlinf.datasets.robot_data.decisions import terminal_frames, transitions_batch
from rlinf.datasets.robot_data.leaves import environment_actions, observation_arrays
from rlinf.datasets.robot_data.reading import (
    count_episodes,
    dataset_columns,
    dataset_instructions,
    frame_rate,
    is_dataset,
    read_dataset,
)
from rlinf.datasets.robot_data.remarks import ends_remark, rate_remark

h5py = pytest.importorskip("h5py", reason="pip install 'oneloop-rl[robots]'")
MINARI = os.environ.get("RLINF_MINARI_PYTHON")


def test_all_columns_ends_and_what_follows_the_last_action(tmp_path: Path) -> None:
    path = minari_folder(tmp_path / "pendulum" / "random-v0")
    assert is_dataset(path)
    found = read_dataset(path)
    assert (count_episodes(path), found.lengths.tolist(), frame_rate(path)) == (3, [3, 2, 4], 0.0)
    assert found.columns["action"][:, 0].tolist() == [0, 0, 0, 2, 2, 10, 10, 10, 10]
    assert found.columns["next.reward"].dtype == np.float64
    assert found.columns["observation"][3].tolist() == [200.0, 201.0]
    assert found.finals["observation"].tolist() == [[6, 7], [204, 205], [1008, 1009]]
    terminal, decided = terminal_frames(found)
    assert (np.flatnonzero(terminal).tolist(), decided) == ([4], "next.terminated")
    assert (dataset_instructions(path), rate_remark(str(path), 20.0), ends_remark(str(path))) == ([""], None, None)
    assert {"observation", "action", "next.terminated", "next.truncated"} <= set(dataset_columns(path))
    assert found.statistics["observation"]["max"].tolist() == [1006.0, 1007.0]


def test_transitions_bootstrap_at_time_limits_and_not_at_terminal_states(tmp_path: Path) -> None:
    found = read_dataset(minari_folder(tmp_path / "set"))
    box = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    arrays, finals = (observation_arrays(found, box, {}, finals=after) for after in (False, True))
    batch = transitions_batch(found, arrays, finals, environment_actions(found, spaces.Box(0, 10, (1,)), {}), 1)
    assert bool(batch.mask.all())
    assert batch.terminated is not None
    assert batch.truncated is not None
    assert batch.terminated[0].nonzero()[:, 0].tolist() == [4]
    assert batch.truncated[0].nonzero()[:, 0].tolist() == [2, 8]
    following: Any = batch.inputs
    assert following.next_observations["observation"][0, 2].tolist() == [6.0, 7.0]
    assert batch.rewards[0].tolist() == pytest.approx([0.1, 1.1, 2.1, 0.1, 1.1, 0.1, 1.1, 2.1, 3.1])


def test_some_episodes_by_their_numbers(tmp_path: Path) -> None:
    path = minari_folder(tmp_path / "set")
    found = read_dataset(path, [2, 1])
    assert found.columns["action"][:, 0].tolist() == [2, 2, 10, 10, 10, 10]
    assert found.location(3) == f"{path}/data/main_data.hdf5: episode_10, frame 1"
    with pytest.raises(DatasetError, match=r"has the episodes 0 to 2, not \[3\]"):
        read_dataset(path, [3])


def test_dict_and_tuple_parts_and_a_text(tmp_path: Path) -> None:
    def observe(number: int, steps: int) -> Any:
        count = steps + 1
        hand = {"angles": np.full((count, 3), number), "touch": np.arange(count)}
        return {"hand": hand, "views": (np.ones((count, 1)), np.zeros(count, np.int64)), "mission": ["go"] * count}

    found = read_dataset(minari_folder(tmp_path / "set", observe))
    space = spaces.Dict(
        {
            "hand": spaces.Dict({"angles": spaces.Box(0, 20, (3,), np.float64), "touch": spaces.Discrete(9)}),
            "views": spaces.Tuple([spaces.Box(0, 1, (1,), np.float64), spaces.Discrete(2)]),
            "mission": spaces.Text(4),
        }
    )
    leaves = observation_arrays(found, space, {})
    assert leaves["observation.hand.angles"][-1].tolist() == [10, 10, 10]
    assert leaves["observation.hand.touch"].tolist() == [0, 1, 2, 0, 1, 0, 1, 2, 3]
    assert leaves["observation.views.0"].shape == (9, 1)
    assert leaves["observation.mission"][0].tobytes() == b"go\0\0"
    assert observation_arrays(found, space, {}, finals=True)["observation.hand.touch"].tolist() == [3, 2, 4]
    assert found.instructions == ["go"]


def test_instructions_differ_by_episode(tmp_path: Path) -> None:
    path = minari_folder(tmp_path / "set", lambda number, steps: {"mission": [f"goal {number}"] * (steps + 1)})
    found = read_dataset(path)
    assert found.instructions == ["goal 0", "goal 2", "goal 10"]
    assert found.task_index.tolist() == [0, 0, 0, 1, 1, 2, 2, 2, 2]


def test_success_of_the_infos_is_a_column(tmp_path: Path) -> None:
    path = minari_folder(tmp_path / "set")
    with h5py.File(path / "data" / "main_data.hdf5", "a") as file:
        for number, steps in LENGTHS.items():
            # The first is of the reset.
            file[f"episode_{number}/infos/success"] = np.array([True] + [False] * (steps - 1) + [number == 2])
    assert np.flatnonzero(read_dataset(path).columns["next.success"]).tolist() == [4]


def spoil(path: Path, name: str, values: Any) -> None:
    with h5py.File(path / "data" / "main_data.hdf5", "a") as file:
        del file[name]
        if values is not None:
            write_into(file, name, values)


def test_pictures_are_jpeg_files_of_different_and_of_equal_sizes(tmp_path: Path) -> None:
    images = pytest.importorskip("PIL.Image", reason="needs the extra video")
    shades = {"camera": np.full((32, 40, 3), 90, np.uint8), "grey": np.full((40, 32), 30, np.uint8)}
    files = {}
    for name, picture in shades.items():
        images.fromarray(picture).save(tmp_path / f"{name}.jpg")
        files[name] = np.frombuffer((tmp_path / f"{name}.jpg").read_bytes(), np.uint8)
    path = minari_folder(tmp_path / "set", lambda number, steps: {"grey": np.stack([files["grey"]] * (steps + 1))})
    with h5py.File(path / "data" / "main_data.hdf5", "a") as file:
        for number, steps in LENGTHS.items():
            kind = h5py.vlen_dtype(np.uint8)
            file[f"episode_{number}/observations"].create_dataset("camera", (steps + 1,), dtype=kind)
            for row in range(steps + 1):
                file[f"episode_{number}/observations/camera"][row] = files["camera"]
    found = read_dataset(path)
    assert found.columns["observation.camera"].shape == (9, 32, 40, 3)
    assert found.columns["observation.grey"].shape == (9, 40, 32)
    assert np.abs(found.columns["observation.camera"].astype(int) - 90).max() < 4
    with h5py.File(path / "data" / "main_data.hdf5", "a") as file:
        file["episode_2/observations/camera"][1] = files["camera"][:40]
    with pytest.raises(DatasetError, match=r"episode_2: observation\.camera, 1: a picture cannot be read"):
        read_dataset(path)


@pytest.mark.parametrize(
    ("name", "values", "words"),
    [
        ("episode_2/truncations", None, "episode_2 has no 'truncations', only actions, "),
        ("episode_2/rewards", np.zeros(5), r"episode_2: next\.reward has 5 frames for 2 actions"),
        (
            "episode_2/observations",
            np.zeros((2, 2)),
            "observation has 2 entries for 2 actions. 3 are needed",
        ),
        (
            "episode_2/observations",
            np.zeros((3, 4)),
            r"observation is \[4\] a frame, and \[2\] in .*episode_0",
        ),
        ("episode_2/actions", np.zeros((0, 1)), "episode_2: observation has 3 entries for 0 actions"),
        ("episode_2/actions", {"arm": np.zeros((2, 1))}, "actions have the parts arm, and a policy here has one array"),
        ("episode_2/terminations", np.array([True, False]), "episode_2 goes on after its end: .* at step 0 of 2"),
        ("episode_2/observations", {"a": ["x"] * 3, "b": ["y"] * 3}, "the texts observation.a, observation.b"),
        ("episode_2", None, "has 2 episodes, and metadata.json of .* counts 3: episode_1 is missing"),
        ("episode_2", np.zeros(3), "episode_2"),
    ],
)
def test_damage_is_named(tmp_path: Path, name: str, values: Any, words: str) -> None:
    path = minari_folder(tmp_path / "set")
    spoil(path, name, values)
    with pytest.raises(DatasetError, match=words):
        read_dataset(path)


def test_numbers_that_are_none_are_named_with_their_frame(tmp_path: Path) -> None:
    path = minari_folder(tmp_path / "set")
    spoil(path, "episode_2/observations", np.array([[0, 0], [0, 0], [np.nan, 0]]))
    box = spaces.Box(-np.inf, np.inf, (2,), np.float64)
    with pytest.raises(DatasetError, match=r"episode_2, frame 1, after its action: observation\[0\] is NaN"):
        observation_arrays(read_dataset(path), box, {}, finals=True)


def test_headers_and_files(tmp_path: Path) -> None:
    arrow = minari_folder(tmp_path / "arrow", header={"data_format": "arrow"})
    with pytest.raises(DatasetError, match="data_format is 'arrow', and hdf5 is read here"):
        read_dataset(arrow)
    (minari_folder(tmp_path / "torn") / "data" / "metadata.json").write_text('{"total_ep')
    with pytest.raises(DatasetError, match=r"torn/data/metadata\.json is no header of a Minari dataset"):
        count_episodes(tmp_path / "torn")
    (minari_folder(tmp_path / "gone") / "data" / "main_data.hdf5").unlink()
    with pytest.raises(DatasetError, match=r"main_data\.hdf5 is missing, the episodes of the Minari dataset"):
        read_dataset(tmp_path / "gone")
    file = minari_folder(tmp_path / "cut") / "data" / "main_data.hdf5"
    file.write_bytes(file.read_bytes()[:900])
    with pytest.raises(DatasetError, match="is no HDF5 file"):
        read_dataset(tmp_path / "cut")
    old = minari_folder(tmp_path / "old")
    (old / "data" / "metadata.json").unlink()  # before Minari 0.5 the header was part of the file
    assert count_episodes(old) == count_episodes(old / "data" / "main_data.hdf5") == 3
    with pytest.raises(DatasetError, match="nothing does not exist"):
        read_dataset(tmp_path / "nothing")


_WRITES = """
import sys, numpy as np, gymnasium as gym, minari
root, env_id, wrapped = sys.argv[1:4]
class Parts(gym.ObservationWrapper):
    def __init__(self, env):
        super().__init__(env)
        self.observation_space = gym.spaces.Dict({
            "state": env.observation_space,
            "pair": gym.spaces.Tuple([gym.spaces.Discrete(5), gym.spaces.Box(-9, 9, (2,), np.float64)]),
            "mission": gym.spaces.Text(8),
            "camera": gym.spaces.Box(0, 255, (32, 40, 3), np.uint8),
            "grey": gym.spaces.Box(0, 255, (40, 32), np.uint8),
            "tiny": gym.spaces.Box(0, 255, (4, 4, 3), np.uint8),
        })
    def observation(self, seen):
        pair = (int(abs(seen[0]) * 4) % 5, np.array(seen[:2], np.float64))
        dots = np.random.default_rng(int(abs(seen[0]) * 1e6)).integers(0, 255, (32, 40, 3), dtype=np.uint8)
        pictures = {"camera": dots, "grey": dots[..., 0].T.copy(), "tiny": dots[:4, :4]}
        return {"state": seen, "pair": pair, "mission": "balance", **pictures}
env = gym.make(env_id, max_episode_steps=40)
env = minari.DataCollector(Parts(env) if wrapped == "parts" else env, record_infos=False)
env.action_space.seed(0)
for seed in range(4):
    env.reset(seed=seed)
    for step in range(5 if seed == 3 else 10_000):
        _, _, terminated, truncated, _ = env.step(env.action_space.sample())
        if terminated or truncated:
            break
made = env.create_dataset(dataset_id="test/made-v0")
def flat(values, name):
    if isinstance(values, dict):
        return {n: v for key, part in values.items() for n, v in flat(part, f"{name}.{key}").items()}
    if isinstance(values, tuple):
        return {n: v for key, part in enumerate(values) for n, v in flat(part, f"{name}.{key}").items()}
    return {name: np.asarray(values)}
kept = {}
for one in made.iterate_episodes():
    for name, values in flat(one.observations, "observation").items():
        kept[f"{one.id}/{name}"] = values
    for name in ("actions", "rewards", "terminations", "truncations"):
        kept[f"{one.id}/{name}"] = np.asarray(getattr(one, name))
np.savez(root + "/kept.npz", **kept)
"""


@pytest.mark.slow
@pytest.mark.skipif(MINARI is None, reason="RLINF_MINARI_PYTHON names no interpreter with Minari")
@pytest.mark.parametrize(("env_id", "wrapped"), [("Pendulum-v1", ""), ("CartPole-v1", ""), ("CartPole-v1", "parts")])
def test_what_minari_writes_is_read_bit_for_bit(tmp_path: Path, env_id: str, wrapped: str) -> None:
    assert MINARI is not None
    environment = {**os.environ, "MINARI_DATASETS_PATH": str(tmp_path), "PYTHONPATH": ""}
    command = [MINARI, "-c", _WRITES, str(tmp_path), env_id, wrapped]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    found = read_dataset(tmp_path / "test" / "made-v0")
    kept = np.load(tmp_path / "kept.npz")
    names = {"actions": "action", "rewards": "next.reward", "terminations": "next.terminated"}
    names["truncations"] = "next.truncated"
    assert ("observation.camera" in found.columns) == bool(wrapped)
    for number, episode in enumerate(found.episodes()):
        for key in (key for key in kept.files if key.startswith(f"{number}/")):
            name, values = key.partition("/")[2], kept[key]
            if name == "observation.mission":
                assert {found.instructions[task] for task in found.task_index[episode]} == set(values.tolist())
                continue
            read = found.columns[names.get(name, name)][episode]
            if name.startswith("observation"):
                read = np.concatenate([read, found.finals[name][number][None]])
            assert read.dtype == values.dtype, name
            assert np.array_equal(read, values), name
    terminal = np.flatnonzero(terminal_frames(found)[0])
    ends = np.cumsum(found.lengths) - 1
    # Pendulum never terminates; the last episode was cut by hand, which Minari marks as truncated.
    assert terminal.tolist() == (ends[:3].tolist() if env_id == "CartPole-v1" else [])
    assert bool(found.columns["next.truncated"][ends[-1]])
