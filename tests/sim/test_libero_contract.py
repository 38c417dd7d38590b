"""LIBERO's adapter against a stand-in with LIBERO's interface and its habits: it reads stdin, and would download."""

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
from rlinf_envs.sim import MissingSimulatorError, libero_scene
from rlinf_envs.sim.libero_files import LiberoFileError, load_init_states
from rlinf_envs.sim.libero_goals import own_and_other_goal

from rlinf.rollouts.vec_env.env_checker import remarks_on

STAND_IN = {
    "libero/__init__.py": "",
    "libero/libero/__init__.py": """
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
    "libero/libero/benchmark.py": """
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
    "libero/libero/envs/__init__.py": "",
    "libero/libero/envs/env_wrapper.py": """
import os
import pdb
import numpy as np
from libero.libero import get_assets_path
from robosuite.utils.errors import RandomizationError
class Thing:
    def __init__(self, **parts): self.__dict__.update(parts)
class Domain:
    control_freq, shy = 20, 0
    def __init__(self):
        self.observables, self.fingers = [], Thing(dof=1, current_action=np.zeros(1))
        self.parsed_problem = {"goal_state": [["open", "top_drawer"]], "initial_state": []}
        self.robots = [Thing(gripper=self.fingers)]
        for name in ("placement_initializer", "placement_on_objects_initializer"):
            setattr(self, f"conditional_{name}", Thing(samplers={"a": 0}, sample_args={"a": 0}))
        self.model, self.data = Thing(nq=1, nv=1, fixture=0.0), Thing(time=0.0, qpos=np.zeros(1), qvel=np.zeros(1))
        self.sim = Thing(model=Thing(_model=self.model), data=Thing(_data=self.data))
    def add_observable(self, observable): self.observables.append(observable)
    def _pre_action(self, action, policy_step=False): pass
    def reset(self):
        Domain.shy -= 1
        if Domain.shy >= 0:
            pdb.set_trace()
            raise RandomizationError("no room")
        assert not self.conditional_placement_initializer.samplers
        assert not self.fingers.current_action.any()
        self.model.fixture = np.random.uniform()
        self.rested = 0
class ControlEnv:
    def __init__(self, bddl_file_name, has_offscreen_renderer, use_camera_obs, hard_reset, ignore_done):
        assert bddl_file_name.endswith("open.bddl") and os.path.isdir(get_assets_path())
        assert (has_offscreen_renderer, use_camera_obs, hard_reset, ignore_done) == (False, False, False, True)
        self.env = Domain()
        self.data = self.env.data
    def set_init_state(self, state):
        self.data.time, self.data.qpos[:], self.data.qvel[:] = state
        return self.seen()
    def step(self, action):
        self.env.rested += int(action[-1] == -1.0 and not action[:6].any())
        self.env.fingers.current_action = self.env.fingers.current_action + 1
        self.data.qpos += action[0]
        return self.seen(), 0.0, bool(self.data.qpos[0] > 100.0), {}
    def close(self): pass
    def seen(self):
        seen = {observable.name: observable.sensor(None) for observable in self.env.observables}
        return seen | {"robot0_eef_pos": np.array([self.data.qpos[0], self.env.model.fixture, 0.0]),
                       "robot0_eef_quat": np.zeros(4), "robot0_gripper_qpos": np.full(2, float(self.env.rested))}
""",
    "robosuite/__init__.py": "",
    "robosuite/utils/__init__.py": "",
    "robosuite/utils/errors.py": "class RandomizationError(RuntimeError): pass",
    "robosuite/utils/observables.py": """
from collections import namedtuple
Observable = namedtuple("Observable", "name sensor sampling_rate")
def sensor(modality): return lambda function: function
""",
}
STATES = np.arange(50.0)[:, None] + np.zeros((50, 3))


class FakeCamera:
    """`Camera`, where there is nothing to draw and maybe no OpenGL."""

    def __init__(self, model: object, name: str, size: int, *, shadows: bool, hidden_groups: tuple[int, ...]) -> None:
        assert hidden_groups == (0,)
        self.size, self.drawn, self.closed = size, 0, False

    def frame(self, data: object, name: str, *, model: object) -> np.ndarray:
        self.drawn += 1
        return np.full((self.size, self.size, 3), 100 if name == "agentview" else 200, np.uint8)

    def close(self) -> None:
        self.closed = True


def save(path: Path, value: object) -> None:
    """As `torch.save` lays it out."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(value, protocol=2))
        archive.writestr("archive/version", "3")


@pytest.fixture
def libero(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for name, text in STAND_IN.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    save(tmp_path / "libero" / "libero" / "init_files" / "libero_goal" / "open.pruned_init", STATES)
    (tmp_path / "libero" / "libero" / "assets" / "scenes").mkdir(parents=True)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("LIBERO_CONFIG_PATH", str(tmp_path / "no_config"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    monkeypatch.setattr(libero_scene, "Camera", FakeCamera)
    yield tmp_path
    for name in [name for name in sys.modules if name.split(".")[0] in ("libero", "robosuite")]:
        del sys.modules[name]


def make(**kwargs: object) -> gymnasium.Env:
    return gymnasium.make("rlinf_envs:rlinf/Libero-v0", suite="libero_goal", image_size=8, max_steps=20, **kwargs)


def test_an_episode_as_the_benchmark_means_it(libero: Path) -> None:
    env = make(settle_steps=4)
    first, _ = env.reset(seed=3)
    again, _ = env.reset(seed=3)
    other, _ = env.reset(seed=4)
    assert all(np.array_equal(first[key], again[key]) for key in first)
    assert not np.array_equal(first["state"], other["state"])
    assert first["instruction"] == "open the top drawer"
    assert (first["image"].max(), first["wrist_image"].max()) == (100, 200)
    assert env.unwrapped._scene._camera.drawn == 3 * 2  # not while objects fall
    assert first["state"][-1] == 4.0  # settled
    assert first in env.observation_space
    _, reward, terminated, truncated, info = env.step(np.ones(7))
    assert (reward, terminated, truncated, info["success"]) == (0.0, False, False, False)
    env.step(np.full(7, 100.0))
    env.reset(seed=3)
    _, reward, _, _, info = env.step(np.ones(7))
    assert (reward, info["success"]) == (0.0, False)
    env.unwrapped._scene._control.data.qpos[:] = 100.5
    _, reward, terminated, truncated, info = env.step(np.ones(7))
    assert (reward, terminated, truncated, info["success"]) == (1.0, True, False, True)
    env.reset(seed=3)
    ends = [env.step(np.zeros(7))[3] for _ in range(20)]
    assert ends == [False] * 19 + [True]
    env.close()


def test_pictures_are_drawn_when_they_are_read_and_by_one_camera_for_all(libero: Path) -> None:
    first, second, alone = make(), make(), make(wrist=False)
    camera = first.unwrapped._scene._camera
    assert second.unwrapped._scene._camera is camera
    seen, _ = first.reset(seed=3)
    assert camera.drawn == 2
    first.unwrapped.draws_observations = False
    unseen, *_ = first.step(np.ones(7))
    assert not unseen["image"].any()
    assert unseen["state"].any()
    assert camera.drawn == 2
    assert first.render().any()
    assert camera.drawn == 3
    first.unwrapped.draws_observations = True
    assert first.step(np.ones(7))[0]["wrist_image"].any()
    assert camera.drawn == 5
    assert set(alone.observation_space.spaces) == set(seen) - {"wrist_image"}  # type: ignore[attr-defined]
    assert alone.reset(seed=3)[0] in alone.observation_space
    second.close()
    assert not camera.closed
    first.close()
    alone.close()
    assert camera.closed


def test_evaluation_starts_are_never_trained_on(libero: Path) -> None:
    starts = {}
    for split in ("train", "eval"):
        env = make(split=split, settle_steps=0)
        starts[split] = {float(env.reset(seed=seed)[0]["state"][0]) for seed in range(300)}
    assert starts["eval"] == set(range(40, 50))
    assert starts["train"] == set(range(40))


def test_gymnasiums_checker_is_content(libero: Path) -> None:
    assert [remark for remark in remarks_on(make()) if remark.fatal] == []


def test_without_room_all_is_drawn_again(libero: Path) -> None:
    env = make()
    first, _ = env.reset(seed=3)
    domain = importlib.import_module("libero.libero.envs.env_wrapper").Domain
    domain.shy, numpys = 2, np.random.get_state()[1].copy()
    again, _ = env.reset(seed=3)
    assert domain.shy == -1
    assert np.array_equal(first["state"], again["state"])
    assert np.array_equal(np.random.get_state()[1], numpys)
    domain.shy = 1000
    with pytest.raises(RuntimeError, match="no room"):
        env.reset(seed=3)


def test_missing_assets_are_requested_and_not_downloaded(libero: Path) -> None:
    (libero / "libero" / "libero" / "assets" / "scenes").rmdir()
    with pytest.raises(LiberoFileError, match=r"make venvs/libero; .*env\.kwargs: \{assets"):
        make()
    (libero / "elsewhere" / "scenes").mkdir(parents=True)
    make(assets=str(libero / "elsewhere")).close()
    with pytest.raises(LiberoFileError, match="not at nowhere"):
        make(assets="nowhere")
    (libero / "home" / ".cache" / "libero" / "assets" / "scenes").mkdir(parents=True)
    make().close()


def test_start_states_of_ones_own(libero: Path) -> None:
    """They must be of the scene: the time, then all positions and speeds."""
    save(libero / "mine" / "libero_goal" / "open.pruned_init", STATES[:5] + 100.0)
    starts = {
        float(make(init_states=str(libero / "mine"), split=split, settle_steps=0).reset(seed=0)[0]["state"][0])
        for split in ("train", "eval")
    }
    assert starts < {100.0, 101.0, 102.0, 103.0, 104.0}
    assert 104.0 in starts
    save(libero / "mine" / "libero_goal" / "open.pruned_init", np.zeros((5, 4)))
    with pytest.raises(LiberoFileError, match=r"states of 4 numbers, and the scene of these assets has 3"):
        make(init_states=str(libero / "mine"))


def test_another_goal_is_requested_or_drawn(libero: Path) -> None:
    env, mixed = make(), make()
    with pytest.raises(ValueError, match="no other goal for 'open the top drawer'"):
        env.reset(seed=3, options={"other_goal": True})
    with pytest.raises(ValueError, match="no other goal"):
        make(other_goals=0.5)
    with pytest.raises(ValueError, match="other_goals must be from 0 to 1, got 2"):
        make(other_goals=2.0)
    problem = {
        "goal_state": [["in", "cream_cheese_1", "basket_1_contain_region"]],
        "initial_state": [["on", name, "floor_region"] for name in ("cream_cheese_1", "milk_1", "basket_1")],
    }
    goals = own_and_other_goal(problem, "put the cream cheese in the basket")
    for made in (env, mixed):
        made.unwrapped._scene.engine.parsed_problem |= problem
        made.unwrapped._goals = goals
    own, info = env.reset(seed=3)
    assert (own["instruction"], info) == ("put the cream cheese in the basket", {})
    other, info = env.reset(seed=3, options={"other_goal": True})
    assert (other["instruction"], info) == ("put the milk in the basket", {"other_goal": True})
    assert np.array_equal(own["state"], other["state"])
    assert env.unwrapped._scene.engine.parsed_problem["goal_state"] == [["in", "milk_1", "basket_1_contain_region"]]
    mixed.unwrapped._other_goals = 0.5
    words = [mixed.reset(seed=seed)[0]["instruction"] for seed in range(40)]
    assert words == [mixed.reset(seed=seed)[0]["instruction"] for seed in range(40)]
    assert 10 < sum("milk" in text for text in words) < 30


def test_textures_are_reduced_once_in_a_copy_of_the_assets(libero: Path) -> None:
    pytest.importorskip("PIL")
    from PIL import Image

    assets = libero / "libero" / "libero" / "assets"
    Image.fromarray(np.arange(48, dtype=np.uint8).reshape(4, 4, 3).repeat(4, 0).repeat(4, 1)).save(assets / "wood.png")
    (assets / "scenes" / "floor.xml").write_text("<mujoco/>")
    make(texture_size=4).close()
    (copy,) = (libero / "home" / ".cache" / "rlinf").iterdir()
    assert np.array_equal(np.asarray(Image.open(copy / "wood.png")), np.arange(48).reshape(4, 4, 3))
    assert (copy / "scenes" / "floor.xml").read_text() == "<mujoco/>"
    before = (copy / "wood.png").stat().st_mtime_ns
    make(texture_size=4).close()
    assert (copy / "wood.png").stat().st_mtime_ns == before
    with pytest.raises(ValueError, match="texture_size must be at least 1, got 0"):
        make(texture_size=0)


def test_errors_of_wrong_names_list_what_there_is(libero: Path) -> None:
    with pytest.raises(ValueError, match="there are libero_goal"):
        gymnasium.make("rlinf_envs:rlinf/Libero-v0", suite="libero_gaol")
    with pytest.raises(ValueError, match="tasks 0 to 0, not 7"):
        make(task=7)


@pytest.mark.parametrize("settings", [{"expert_speed": 0.0}, {"expert_speed": 1.5}, {"expert_haste": 1.0}])
def test_a_demonstrator_cannot_stand_or_fly(settings: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="expert_speed must be above 0 and at most 1, expert_haste at least 0"):
        make(**settings)


@pytest.mark.skipif(importlib.util.find_spec("libero") is not None, reason="LIBERO is installed here")
def test_without_libero_the_message_names_what_to_do() -> None:
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
