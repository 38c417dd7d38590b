"""LIBERO's adapter against a stand-in with LIBERO's interface and its habits: it asks, and it would download."""

from __future__ import annotations

import importlib
import io
import pickle
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from rlinf_envs.sim import MissingSimulatorError
from rlinf_envs.sim.camera import BlackFrameError
from rlinf_envs.sim.libero_files import LiberoFileError, load_init_states

from rlinf.rollouts.remarks import remarks_on

STAND_IN = {
    "__init__.py": "",
    "libero/__init__.py": """
import os
import json
config_file = os.path.join(os.environ.get("LIBERO_CONFIG_PATH", os.path.expanduser("~/.libero")), "config.yaml")
_assets_path_cache = None
def get_assets_path():
    assert _assets_path_cache is not None, "this would download"
    return _assets_path_cache
def get_libero_path(key):
    return json.load(open(config_file))[key]
if not os.path.exists(config_file):
    input("Do you want to specify a custom path for the dataset folder? (Y/N): ")
""",
    "libero/benchmark.py": """
import os
from collections import namedtuple
from libero.libero import get_libero_path
Task = namedtuple("Task", "language problem_folder bddl_file init_states_file")
class Suite:
    def get_num_tasks(self): return 1
    def get_task(self, i): return Task("open the top drawer", "libero_goal", "open.bddl", "open.pruned_init")
    def get_task_bddl_file_path(self, i): return os.path.join(get_libero_path("bddl_files"), "libero_goal", "open.bddl")
def get_benchmark_dict(): return {"libero_goal": Suite}
""",
    "libero/envs.py": """
import os
import numpy as np
from libero.libero import get_assets_path
class Thing: pass
class OffScreenRenderEnv:
    black = False
    def __init__(self, bddl_file_name, camera_heights, camera_widths):
        assert bddl_file_name.endswith("open.bddl") and os.path.isdir(get_assets_path())
        self.size = (camera_heights, camera_widths, 3)
        self.sim = Thing()
    def seed(self, seed): pass
    def reset(self):
        self.sim._render_context_offscreen = Thing()
        self.sim._render_context_offscreen.scn = Thing()
        self.sim._render_context_offscreen.scn.flags = np.ones(10)
        self.rested = 0
    def set_init_state(self, state):
        self.state = np.array(state)
        return self.seen()
    def step(self, action):
        assert self.sim._render_context_offscreen.scn.flags.sum() == 8
        self.rested += int(action[-1] == -1.0 and not action[:6].any())
        self.state = self.state + action[0]
        return self.seen(), 0.0, False, {}
    def check_success(self): return bool(self.state[0] > 100.0)
    def close(self): pass
    def seen(self):
        image = np.zeros(self.size, np.uint8)
        if not self.black:
            image[-1] = 200
        return {"agentview_image": image, "robot0_eye_in_hand_image": image, "robot0_eef_pos": self.state[:3],
                "robot0_eef_quat": np.zeros(4), "robot0_gripper_qpos": np.full(2, float(self.rested))}
""",
}
STATES = np.arange(50.0)[:, None] + np.zeros((50, 3))


def save(path: Path, value: object) -> None:
    """As `torch.save` lays it out."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(value, protocol=2))
        archive.writestr("archive/version", "3")


@pytest.fixture
def libero(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for name, text in STAND_IN.items():
        file = tmp_path / "libero" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    save(tmp_path / "libero" / "libero" / "init_files" / "libero_goal" / "open.pruned_init", STATES)
    (tmp_path / "libero" / "libero" / "assets").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("LIBERO_CONFIG_PATH", str(tmp_path / "no_config"))
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    yield tmp_path
    for name in [name for name in sys.modules if name.split(".")[0] == "libero"]:
        del sys.modules[name]


def make(**kwargs: object) -> gymnasium.Env:
    pytest.importorskip("mujoco")
    return gymnasium.make("rlinf_envs:rlinf/Libero-v0", suite="libero_goal", image_size=8, max_steps=20, **kwargs)


@pytest.mark.sim
def test_an_episode_as_the_benchmark_means_it(libero: Path) -> None:
    env = make(settle_steps=4)
    first, _ = env.reset(seed=3)
    again, _ = env.reset(seed=3)
    other, _ = env.reset(seed=4)
    assert all(np.array_equal(first[key], again[key]) for key in first)
    assert not np.array_equal(first["state"], other["state"])
    assert first["instruction"] == "open the top drawer"
    assert first["image"][0].min() == 200  # upright
    assert first["state"][-1] == 4.0  # settled
    assert first in env.observation_space
    _, reward, terminated, truncated, info = env.step(np.ones(7))
    assert (reward, terminated, truncated, info["success"]) == (0.0, False, False, False)
    env.unwrapped._env.state[:] = 100.5
    _, reward, terminated, truncated, info = env.step(np.ones(7))
    assert (reward, terminated, truncated, info["success"]) == (1.0, True, False, True)
    env.reset(seed=3)
    ends = [env.step(np.zeros(7))[3] for _ in range(20)]
    assert ends == [False] * 19 + [True]
    env.close()


@pytest.mark.sim
def test_evaluation_starts_are_never_trained_on(libero: Path) -> None:
    starts = {}
    for split in ("train", "eval"):
        env = make(split=split, settle_steps=0)
        starts[split] = {float(env.reset(seed=seed)[0]["state"][0]) for seed in range(300)}
    assert starts["eval"] == set(range(40, 50))
    assert starts["train"] == set(range(40))


@pytest.mark.sim
def test_gymnasiums_checker_is_content(libero: Path) -> None:
    assert [remark for remark in remarks_on(make()) if remark.fatal] == []


@pytest.mark.sim
def test_black_frames_are_noticed(libero: Path) -> None:
    env = make()
    importlib.import_module("libero.libero.envs").OffScreenRenderEnv.black = True
    with pytest.raises(BlackFrameError, match="agentview"):
        env.reset(seed=0)


@pytest.mark.sim
def test_missing_assets_are_asked_for_and_not_downloaded(libero: Path) -> None:
    (libero / "libero" / "libero" / "assets").rmdir()
    with pytest.raises(LiberoFileError, match=r"env\.kwargs: \{assets"):
        make()
    (libero / "elsewhere").mkdir()
    make(assets=str(libero / "elsewhere")).close()


@pytest.mark.sim
def test_wrong_names_say_what_there_is(libero: Path) -> None:
    pytest.importorskip("mujoco")
    with pytest.raises(ValueError, match="there are libero_goal"):
        gymnasium.make("rlinf_envs:rlinf/Libero-v0", suite="libero_gaol")
    with pytest.raises(ValueError, match="tasks 0 to 0, not 7"):
        make(task=7)


@pytest.mark.skipif(importlib.util.find_spec("libero") is not None, reason="LIBERO is installed here")
def test_without_libero_the_message_says_what_to_do() -> None:
    with pytest.raises(MissingSimulatorError, match=r"requirements/libero\.txt.*env\.isolation: process"):
        gymnasium.make("rlinf_envs:rlinf/Libero-v0")


class Evil:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return print, ("run by unpickling",)


def test_start_states_are_numbers_or_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "a.pruned_init"
    save(file, STATES)
    np.testing.assert_array_equal(load_init_states(file), STATES)
    save(file, Evil())
    with pytest.raises(LiberoFileError, match=r"a\.pruned_init is refused: it wants .*print"):
        load_init_states(file)
    assert capsys.readouterr().out == ""
    for wrong in (np.zeros(3), [1.0], np.zeros((2, 2), dtype=np.int64)):
        save(file, wrong)
        with pytest.raises(LiberoFileError, match="no start states"):
            load_init_states(file)
    file.write_bytes(b"not a zip")
    with pytest.raises(LiberoFileError, match="BadZipFile"):
        load_init_states(file)
    with pytest.raises(LiberoFileError, match="FileNotFoundError"):
        load_init_states(tmp_path / "nowhere")
