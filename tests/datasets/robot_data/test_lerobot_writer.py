"""LeRobotDataset v3: what is written is read again, bit for bit where pictures are PNG files."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from rlinf.datasets.robot_data.dataset import DatasetError, RecordedEpisode
from rlinf.datasets.robot_data.lerobot_writer import LeRobotWriter
from rlinf.datasets.robot_data.reading import count_episodes, dataset_instructions, dataset_statistics, read_dataset


def episode(length: int, seed: int, instruction: str = "touch the red cube", size: int = 16) -> RecordedEpisode:
    draw = np.random.default_rng(seed)
    smooth = np.broadcast_to(np.linspace(0, 200, size)[:, None, None], (length, size, size, 3))
    pictures = (smooth + np.arange(length)[:, None, None, None] * 5 + seed).astype(np.uint8)
    return RecordedEpisode(
        {
            "observation.images.front": pictures,
            "observation.state": draw.normal(size=(length, 3)).astype(np.float32),
            "observation.grid": draw.integers(0, 5, size=(length, 2, 4)),
            "action": draw.uniform(-1, 1, size=(length, 2)).astype(np.float32),
            "next.reward": draw.normal(size=length).astype(np.float32),
            "next.done": np.arange(length) == length - 1,
        },
        instruction,
    )


def write(root: Path, episodes: list[RecordedEpisode], *, videos: bool = False) -> None:
    with LeRobotWriter(root, fps=10, videos=videos, robot_type="table") as writer:
        for one in episodes:
            writer.add(one)


def test_everything_comes_back_bit_for_bit(tmp_path: Path) -> None:
    episodes = [episode(5, 0), episode(3, 1, "push the ball"), episode(4, 2)]
    write(tmp_path / "set", episodes)
    found = read_dataset(tmp_path / "set")
    assert found.lengths.tolist() == [5, 3, 4]
    assert [found.instructions[task] for task in found.task_index[[0, 5, 8]]] == [one.instruction for one in episodes]
    assert found.columns.keys() == episodes[0].columns.keys()
    for name, values in found.columns.items():
        given = np.concatenate([one.columns[name] for one in episodes])
        assert values.dtype == given.dtype
        assert np.array_equal(values, given), name
    assert [list(frames) for frames in found.episodes()][1] == [5, 6, 7]
    assert (count_episodes(tmp_path / "set"), dataset_instructions(tmp_path / "set")) == (3, list(found.instructions))
    some = read_dataset(tmp_path / "set", [2, 1])
    assert some.lengths.tolist() == [3, 4]
    assert np.array_equal(some.columns["action"], np.concatenate([one.columns["action"] for one in episodes[1:]]))


def test_statistics_are_those_of_all_frames(tmp_path: Path) -> None:
    episodes = [episode(6, 0), episode(4, 1)]
    write(tmp_path / "set", episodes)
    actions = np.concatenate([one.columns["action"] for one in episodes]).astype(np.float64)
    kept = dataset_statistics(tmp_path / "set")
    assert kept["action"]["mean"] == pytest.approx(actions.mean(0))
    assert kept["action"]["q99"] == pytest.approx(np.quantile(actions, 0.99, axis=0))
    assert kept["action"]["count"].tolist() == [10]
    assert kept["observation.images.front"]["mean"].shape == (3, 1, 1)
    assert 0 < kept["observation.images.front"]["mean"].mean() < 1


def test_films_are_read_frame_by_frame(tmp_path: Path) -> None:
    pytest.importorskip("av")
    episodes = [episode(7, 0, size=32), episode(9, 40, size=32)]
    write(tmp_path / "set", episodes, videos=True)
    for chosen in (None, [1]):
        found = read_dataset(tmp_path / "set", chosen).columns["observation.images.front"]
        parts = episodes if chosen is None else episodes[1:]
        given = np.concatenate([one.columns["observation.images.front"] for one in parts])
        assert np.abs(found.astype(int) - given).mean() < 2.0
        nearest = [np.abs(given.astype(int) - frame).mean((1, 2, 3)).argmin() for frame in found]
        assert nearest == list(range(len(given)))
    assert len(list((tmp_path / "set").rglob("*.mp4"))) == 1


def test_a_folder_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"images\.front as"):
        write(tmp_path / "set", [episode(2, 0), episode(2, 0, size=20)])
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(DatasetError, match="no episode"), LeRobotWriter(tmp_path / "set", fps=10):
        pass
    assert list(tmp_path.iterdir()) == []
    write(tmp_path / "set", [episode(2, 0)])
    with pytest.raises(DatasetError, match="exists"):
        LeRobotWriter(tmp_path / "set", fps=10)


def test_what_is_no_dataset_is_reported(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="LeRobotDataset v3 folder"):
        read_dataset(tmp_path)
    write(tmp_path / "set", [episode(2, 0)])
    with pytest.raises(DatasetError, match="episodes 0 to 0"):
        read_dataset(tmp_path / "set", [1])
    header = tmp_path / "set" / "meta" / "info.json"
    header.write_bytes(b"\xef\xbb\xbf" + header.read_bytes())  # the byte-order mark that editors of Windows write
    assert len(read_dataset(tmp_path / "set").lengths) == 1
    header.write_text(json.dumps(json.loads(header.read_text("utf-8-sig")) | {"codebase_version": "v2.1"}))
    with pytest.raises(DatasetError, match=r"format v2\.1"):
        read_dataset(tmp_path / "set")
