"""Recorded actions and observations held against the spaces of the environment that will take them."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from rlinf.datasets.robot_data.dataset import DatasetError, RobotDataset
from rlinf.datasets.robot_data.leaves import environment_actions, observation_arrays

BOUNDED = spaces.Box(np.float32([-1, 0]), np.float32([1, np.inf]))


def dataset(**columns: Any) -> RobotDataset:
    named = {name.replace("_", "."): np.asarray(values) for name, values in columns.items()}
    frames = len(next(iter(named.values())))
    return RobotDataset(Path("set"), named, np.array([2, frames - 2]), ["go"], np.zeros(frames, np.int64), 10.0, {})


def test_actions_in_other_units_are_warned_of() -> None:
    recorded = dataset(action=np.float32([[0, 0], [1, 1], [90, 5], [-45, 2]]))
    with pytest.warns(
        RuntimeWarning, match=r"50% of the recorded actions .*action\[0\] of set: episode 1, frame 0 is 90"
    ):
        environment_actions(recorded, BOUNDED, {})


def test_actions_within_the_bounds_are_not() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        environment_actions(dataset(action=np.float32([[-1.0005, 0], [1, 1e6], [0, 0]])), BOUNDED, {})
        environment_actions(dataset(action=np.float32([[1e6], [0], [0]])), spaces.Box(-np.inf, np.inf, (1,)), {})


def test_categories_outside_their_space_are_named() -> None:
    recorded = dataset(action=[0, 1, 2, 4], observation_goal=[0, 1, 2, 3])
    with pytest.raises(DatasetError, match=r"set: episode 1, frame 1: action is 4, which is outside Discrete\(3\)"):
        environment_actions(recorded, spaces.Discrete(3), {})
    seen = spaces.Dict(goal=spaces.Discrete(3))
    with pytest.raises(DatasetError, match=r"frame 1: observation.goal is 3, which is outside Discrete\(3\)"):
        observation_arrays(recorded, seen, {})
    assert environment_actions(recorded, spaces.Discrete(5), {}).tolist() == [0, 1, 2, 4]
