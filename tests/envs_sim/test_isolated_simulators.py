"""robosuite in its own virtual environment, which `make venvs/robosuite` makes; `ROBOSUITE_PYTHON` names another."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlinf.rollouts.isolation.lanes import remarks_in_process
from rlinf.rollouts.make_env import EnvOptions
from rlinf.rollouts.vectorize import make_lanes

PYTHON = Path(os.environ.get("ROBOSUITE_PYTHON", Path(__file__).parents[2] / "venvs" / "robosuite" / "bin" / "python"))
pytestmark = [pytest.mark.sim, pytest.mark.skipif(not PYTHON.exists(), reason="no virtual environment of robosuite")]


def options(**kwargs: Any) -> EnvOptions:
    wrappers = ("rlinf.rollouts.wrappers:TokenizeText",) if "camera" in kwargs else ()
    return EnvOptions(
        "rlinf_envs:rlinf/Robosuite-v0",
        kwargs,
        wrappers,
        isolation="process",
        python=str(PYTHON),
        step_timeout_s=200.0,
        success_key="success",
    )


@pytest.mark.parametrize("kwargs", [{}, {"camera": "agentview"}], ids=["state", "camera"])
def test_a_seed_fixes_start_and_course_exactly(kwargs: dict[str, Any]) -> None:
    lanes = make_lanes(options(**kwargs), 2)
    try:
        assert lanes.reset([0, 1], [7, 7]) == {}
        start = {name: leaf.copy() for name, leaf in lanes.observations.items()}
        assert all(np.array_equal(leaf[0], leaf[1]) for leaf in start.values())
        lanes.action_space.seed(3)
        for _ in range(5):
            action = lanes.action_space.sample()
            result = lanes.step([0, 1], np.stack([action, action]))
            assert result.failed == {}, lanes.last_failure
            assert result.rewards[0] == result.rewards[1]
            assert all(np.array_equal(leaf[0], leaf[1]) for leaf in lanes.observations.values())
        lanes.reset([0, 1], [8, 7])
        assert all(np.array_equal(leaf[1], start[name][1]) for name, leaf in lanes.observations.items())
        assert not all(np.array_equal(leaf[0], start[name][0]) for name, leaf in lanes.observations.items())
    finally:
        lanes.close()


def test_the_two_sides_of_the_split_start_elsewhere() -> None:
    starts = []
    for split in ("train", "eval"):
        lanes = make_lanes(options(split=split), 1)
        lanes.reset([0], [7])
        starts.append(lanes.observations["observation"].copy())
        lanes.close()
    assert not np.array_equal(*starts)


def test_the_checker_finds_nothing_serious() -> None:
    assert [remark for remark in remarks_in_process(options()) if remark.fatal] == []
