"""`rlinf check` looks at a simulator before it is trained on, and says what it found in words."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from rlinf.cli import FAILED, main

ENV = """
import gymnasium
import numpy as np
from gymnasium import spaces


class Env(gymnasium.Env):
    action_space = spaces.Discrete(2)
    observation_space = spaces.Box(-1.0, 1.0, (2,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return {observation}, {{}}

    def step(self, action):
        return np.zeros(2, np.float32), 0.0, False, False, {{}}


gymnasium.register("{name}-v0", entry_point=Env)
"""
RECIPE = """
policy: {name: actor_critic}
algorithm: {adv_type: gae, loss_type: actor_critic}
env: {id: "%s"}
"""


def checked(folder: Path, env_id: str) -> int:
    recipe = folder / "run.yaml"
    recipe.write_text(RECIPE % env_id)
    return main(["check", str(recipe)])


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("module", "observation", "words"),
    [
        ("outside_space", "np.full(2, 9.0, np.float32)", "The policy is built from the space"),
        ("own_noise", "np.random.uniform(-1, 1, 2).astype(np.float32)", "draw only from self.np_random"),
    ],
)
def test_a_broken_environment_is_explained(
    own: Path, capsys: pytest.CaptureFixture[str], module: str, observation: str, words: str
) -> None:
    (own / f"{module}.py").write_text(ENV.format(name=module, observation=observation))
    assert checked(own, f"{module}:{module}-v0") == FAILED
    assert words in capsys.readouterr().out
    sys.modules.pop(module)


def test_a_sound_one_passes(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (own / "sound.py").write_text(ENV.format(name="sound", observation="np.zeros(2, np.float32)"))
    assert checked(own, "sound:sound-v0") == 0
    assert "! environment" not in capsys.readouterr().out
    assert checked(own, "CartPole-v1") == 0


def test_an_id_that_nobody_registered_says_so(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert checked(own, "CartPoel-v1") == FAILED
    assert "is not registered" in capsys.readouterr().out
