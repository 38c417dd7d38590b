"""lerobot itself, in an interpreter of its own, opens what is written here, and what it writes is read here."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
from test_lerobot_writer import episode, write

from rlinf.datasets.robot_data.reading import read_dataset

LEROBOT = Path(os.environ.get("RLINF_LEROBOT_PYTHON", "venvs/lerobot/bin/python"))
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not LEROBOT.exists(), reason="make venvs/lerobot PYTHON=python3.12"),
]
_OPENS = """
import sys, numpy as np
from lerobot.datasets.lerobot_dataset import LeRobotDataset
root, given, tolerance = sys.argv[1], np.load(sys.argv[2]), int(sys.argv[3])
found = LeRobotDataset("local/set", root=root, video_backend="pyav")
assert (len(found), found.num_episodes) == (len(given["action"]), 3)
assert found[6]["task"] == "push the ball"
assert np.allclose(found.meta.stats["action"]["mean"], given["action"].mean(0), atol=1e-6)
for row in range(len(found)):
    frame = found[row]
    seen = (frame.pop("observation.images.front").permute(1, 2, 0).numpy() * 255).round()
    assert np.abs(seen - given["observation.images.front"][row]).max() <= tolerance
    for name in set(given.files) - {"observation.images.front"}:
        assert np.array_equal(np.asarray(frame[name]).reshape(given[name][row].shape), given[name][row]), name
"""
_WRITES = """
import sys, numpy as np
from lerobot.datasets.lerobot_dataset import LeRobotDataset
root, given, kind = sys.argv[1], np.load(sys.argv[2]), sys.argv[3]
features = {name: {"dtype": str(values.dtype), "shape": values.shape[1:] or (1,), "names": None}
            for name, values in given.items()}
features["observation.images.front"] |= {"dtype": kind, "names": ["height", "width", "channels"]}
made = LeRobotDataset.create("local/set", fps=10, root=root, use_videos=kind == "video", features=features)
row = 0
for length, task in ((5, "touch the red cube"), (3, "push the ball"), (4, "touch the red cube")):
    for _ in range(length):
        made.add_frame({name: np.atleast_1d(values[row]) for name, values in given.items()} | {"task": task})
        row += 1
    made.save_episode()
made.finalize()
"""


def episodes() -> list:
    return [episode(5, 0, size=64), episode(3, 10, "push the ball", size=64), episode(4, 20, size=64)]


def in_lerobot(code: str, *words: str) -> None:
    offline = {"HF_HUB_OFFLINE": "1", "PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/")}
    done = subprocess.run([LEROBOT, "-c", code, *words], capture_output=True, text=True, timeout=250, env=offline)
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.fixture
def given(tmp_path: Path) -> dict[str, np.ndarray]:
    listed = episodes()
    columns = {name: np.concatenate([one.columns[name] for one in listed]) for name in listed[0].columns}
    np.savez(tmp_path / "given.npz", **columns)
    return columns


@pytest.mark.usefixtures("given")
@pytest.mark.parametrize(("videos", "tolerance"), [(False, 0), (True, 4)])
def test_lerobot_opens_what_is_written_here(tmp_path: Path, videos: bool, tolerance: int) -> None:
    write(tmp_path / "set", episodes(), videos=videos)
    in_lerobot(_OPENS, str(tmp_path / "set"), str(tmp_path / "given.npz"), str(tolerance))


@pytest.mark.parametrize(("kind", "tolerance"), [("image", 0), ("video", 12)])
def test_what_lerobot_writes_is_read_here(
    tmp_path: Path, given: dict[str, np.ndarray], kind: str, tolerance: int
) -> None:
    in_lerobot(_WRITES, str(tmp_path / "set"), str(tmp_path / "given.npz"), kind)
    found = read_dataset(tmp_path / "set")
    assert found.lengths.tolist() == [5, 3, 4]
    assert [found.instructions[task] for task in found.task_index[[0, 5, 8]]][1] == "push the ball"
    assert found.statistics["action"]["mean"] == pytest.approx(given["action"].mean(0), abs=1e-6)
    pictures = found.columns["observation.images.front"].astype(int)
    assert np.abs(pictures - given["observation.images.front"]).max() <= tolerance
    for name in given.keys() - {"observation.images.front"}:
        assert found.columns[name].dtype == given[name].dtype
        assert np.array_equal(found.columns[name], given[name]), name
