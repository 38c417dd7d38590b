"""Environments whose spaces are made by their first reset."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from rlinf.rollouts.vec_env.make_env import EnvConstructionError, make_env
from rlinf.schema import EnvConfig


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
