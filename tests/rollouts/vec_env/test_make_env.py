"""How an environment is made: from a class or a function, with wrappers; what a person's module does wrong."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

from rlinf.base.errors import UserError
from rlinf.rollouts.vec_env.make_env import EnvConstructionError, EnvNotFoundError, make_env, may_skip_pictures
from rlinf.rollouts.vec_env.sync import SyncVecEnv
from rlinf.rollouts.vec_env.vec_env import close_quietly
from rlinf.rollouts.vec_env.vectorize import make_vec_env
from rlinf.schema import EnvConfig
from rlinf.schema.derived import with_words


class Late(gymnasium.Env):
    """It has its spaces after a reset; with ``whole=False`` the actions' never."""

    def __init__(self, whole: bool = True) -> None:
        self.whole = whole

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.observation_space = spaces.Box(-1, 1, (3,), np.float32)
        if self.whole:
            self.action_space = spaces.Discrete(2)
        return np.zeros(3, np.float32), {}


@pytest.fixture(autouse=True)
def module(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("late_spaces")
    Late.__module__ = "late_spaces"
    module.Late = Late  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "late_spaces", module)


def test_spaces_of_the_first_reset_are_read() -> None:
    env = make_env(EnvConfig("late_spaces:Late", wrappers=["FlattenObservation"]))
    assert (env.observation_space.shape, env.action_space) == ((3,), spaces.Discrete(2))


def test_spaces_that_no_reset_makes_are_named() -> None:
    with pytest.raises(EnvConstructionError, match="late_spaces:Late' has no action_space, not even after a reset"):
        make_env(EnvConfig("late_spaces:Late", {"whole": False}))


@pytest.mark.parametrize("space", [{"x": spaces.Box(-1, 1, (3,))}, 4])
def test_spaces_that_are_none_of_gymnasium_are_named(monkeypatch: pytest.MonkeyPatch, space: object) -> None:
    monkeypatch.setattr(Late, "observation_space", space, raising=False)
    words = f"its observation_space is a builtins.{type(space).__name__}, and must be one of gymnasium.spaces"
    with pytest.raises(EnvConstructionError, match=words):
        make_env(EnvConfig("late_spaces:Late"))


class Wandering(gymnasium.Env):
    """It goes to the folder of its files, and reads one of them by its name."""

    observation_space = spaces.Box(-1, 1, (3,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, folder: str) -> None:
        os.chdir(folder)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return np.full(3, float(Path("start.txt").read_text()), np.float32), {}


def test_an_environment_has_a_working_directory_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "start.txt").write_text("0.5")
    monkeypatch.chdir(tmp_path)
    vec_env = SyncVecEnv(EnvConfig(f"{__name__}:Wandering"), 2, lambda _: Wandering("files" if here() else "."))
    assert here()
    assert not vec_env.reset([0, 1], [0, 1])
    assert vec_env.observations["observation"].tolist() == [[0.5] * 3] * 2
    assert here()


def test_an_environment_that_sets_the_dtype_of_all_tensors_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Late, "__init__", lambda self: torch.set_default_dtype(torch.float64))
    monkeypatch.setattr(Late, "whole", True, raising=False)
    try:
        with pytest.raises(EnvConstructionError, match=r"calls torch.set_default_dtype \(torch.float64\)"):
            make_vec_env(EnvConfig("late_spaces:Late", vectorization="sync", step_timeout_s=0.0), 1)
    finally:
        torch.set_default_dtype(torch.float32)


def test_an_environment_that_leaves_inference_mode_on_is_named() -> None:
    with torch.inference_mode(), pytest.raises(EnvConstructionError, match=r"leaves torch\.inference_mode on"):
        make_vec_env(EnvConfig("CartPole-v1", vectorization="sync"), 1)


def here() -> bool:
    return Path("files").exists()


MAKERS = """
import gymnasium
from late_spaces import Late

made = Late()

def plain(**kwargs):
    return gymnasium.wrappers.TimeLimit(Late(**kwargs), 3)

def nothing():
    Late()

def thunk():
    return lambda: Late()

def vectors(**kwargs):
    return gymnasium.vector.SyncVectorEnv([lambda: gymnasium.make("CartPole-v1")])

def lost(env):
    gymnasium.wrappers.TimeLimit(env, 3)

class Blind(gymnasium.Wrapper):
    def __init__(self, env):
        raise RuntimeError("no camera")
"""


@pytest.fixture
def makers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "makers_here.py").write_text(MAKERS)
    monkeypatch.delitem(sys.modules, "makers_here", raising=False)
    return tmp_path


def test_a_function_makes_an_environment(makers: Path) -> None:
    env = make_env(EnvConfig("makers_here:plain", {"whole": True}))
    assert isinstance(env.unwrapped, Late)
    assert env.get_wrapper_attr("_max_episode_steps") == 3


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("made", "makes its own: write late_spaces:Late"),
        ("nothing", "gives None, which is no gymnasium environment"),
        ("thunk", "gives a function: let it return the environment that this one makes"),
        ("vectors", "gives a vector environment, and needs a parameter num_envs"),
    ],
)
def test_what_is_no_single_environment_is_named(makers: Path, name: str, words: str) -> None:
    with pytest.raises(EnvNotFoundError, match=words):
        make_env(EnvConfig(f"makers_here:{name}"))


@pytest.mark.parametrize(
    ("wrapper", "words"),
    [
        ("makers_here:lost", "makers_here:lost gives None, and must return an environment"),
        ("makers_here:Blind", r"Blind could not be constructed: RuntimeError: no camera, at\n.*makers_here.py"),
        (
            {"RecordVideo": {"video_folder": "films"}},
            "RecordVideo could not be constructed: .*render_mode.*Films of evaluations: evaluation.video_every",
        ),
        ("NormalizeReward", "has statistics of its own .* Write env.normalize_rewards: true instead"),
        ("GrayscaleObservation", "GrayscaleObservation could not be constructed: "),
    ],
)
def test_a_wrapper_that_fails_is_named(makers: Path, wrapper: Any, words: str) -> None:
    with pytest.raises(UserError, match=f"env.wrappers: .*{words}"):
        make_env(EnvConfig("CartPole-v1", wrappers=[wrapper]))


def test_wrappers_have_their_python_path_and_lists_as_tuples() -> None:
    reshaped: Any = {"gymnasium.wrappers.ReshapeObservation": {"shape": [2, 2]}}
    env = make_env(EnvConfig("CartPole-v1", wrappers=["gymnasium.wrappers.FlattenObservation", reshaped]))
    assert env.observation_space.shape == (2, 2)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("def f(:", r"SyntaxError: invalid syntax \(broken_here.py, line 1\)$"),
        (
            "import argparse\np = argparse.ArgumentParser()\np.add_argument('n')\np.parse_args([])",
            "SystemExit: 2: it reads the command line when it is imported",
        ),
        ("from .base import x", "ImportError: attempted relative import"),
    ],
)
def test_a_module_that_cannot_be_imported_is_named(makers: Path, text: str, words: str) -> None:
    (makers / "broken_here.py").write_text(text)
    with pytest.raises(EnvConstructionError, match=f"the import of broken_here raised {words}") as raised:
        make_env(EnvConfig("broken_here:Env"))
    assert "importlib" not in str(raised.value)
    assert "in parse_args" not in str(raised.value)


@pytest.mark.parametrize(
    ("env_id", "words"),
    [("ALE/Pong-v5", "write ale_py:ALE/Pong-v5"), ("envs/mine:Env", "write mine:Env, and add its folder envs")],
)
def test_an_id_that_is_written_otherwise_is_named(env_id: str, words: str) -> None:
    with pytest.raises(EnvNotFoundError, match=words):
        make_env(EnvConfig(env_id))


def test_an_environment_that_leaves_when_it_is_closed_ends_nothing() -> None:
    class Leaving(Late):
        def close(self) -> None:
            sys.exit(3)

    close_quietly(Leaving())


@pytest.mark.parametrize("words", [None, "other_goal", "blank"])
def test_pictures_that_are_not_read_are_left_out_with_other_words_too(words: Any) -> None:
    options = EnvConfig("rlinf_envs:rlinf/Tabletop-v0", {"image_size": 16})
    changed = with_words(options, words)
    env = make_env(changed)
    assert may_skip_pictures(env, changed)
    # A wrapper of the user's may keep the observations of several steps.
    assert not may_skip_pictures(env, replace(changed, wrappers=[*changed.wrappers, "my_wrappers:Kept"]))
