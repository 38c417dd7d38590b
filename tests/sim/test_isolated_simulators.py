"""Simulators in virtual environments of their own, which `make venvs/NAME` makes."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlinf.rollouts.isolation.vec_env import IsolatedVecEnv, remarks_in_process
from rlinf.rollouts.vec_env.vectorize import make_vec_env
from rlinf.rollouts.video.filmable import try_filming
from rlinf.schema import EnvConfig

VENVS = Path(__file__).parents[2] / "venvs"
pytestmark = pytest.mark.sim


def options(name: str, id_: str, success_key: str = "success", **kwargs: Any) -> EnvConfig:
    python = VENVS / name / "bin" / "python"
    if not python.exists():
        pytest.skip(f"make venvs/{name}")
    wrappers: list[Any] = ["rlinf.rollouts.wrappers:TokenizeText"] if "camera" in kwargs else []
    return EnvConfig(
        id_,
        kwargs,
        wrappers=wrappers,
        isolation="process",
        python=str(python),
        step_timeout_s=200.0,
        success_key=success_key,
    )


robosuite = partial(options, "robosuite", "rlinf_envs:rlinf/Robosuite-v0")
panda = partial(options, "panda_gym", "panda_gym:PandaReachDense-v3", "is_success")
MADE = {
    "robosuite": robosuite,
    "robosuite camera": partial(robosuite, camera="agentview"),
    "panda": panda,
}


@pytest.mark.parametrize("name", MADE)
def test_a_seed_fixes_start_and_trajectory_exactly(name: str) -> None:
    vec_env = make_vec_env(MADE[name](), 2)
    try:
        assert vec_env.reset([0, 1], [7, 7]) == {}
        start = {name: leaf.copy() for name, leaf in vec_env.observations.items()}
        assert all(np.array_equal(leaf[0], leaf[1]) for leaf in start.values())
        vec_env.action_space.seed(3)
        for _ in range(5):
            action = vec_env.action_space.sample()
            result = vec_env.step([0, 1], np.stack([action, action]))
            assert result.failed == {}, vec_env.last_failure
            assert result.rewards[0] == result.rewards[1]
            assert all(np.array_equal(leaf[0], leaf[1]) for leaf in vec_env.observations.values())
        vec_env.reset([0, 1], [8, 7])
        assert all(np.array_equal(leaf[1], start[name][1]) for name, leaf in vec_env.observations.items())
        assert not all(np.array_equal(leaf[0], start[name][0]) for name, leaf in vec_env.observations.items())
    finally:
        vec_env.close()


def test_the_two_sides_of_the_split_start_elsewhere() -> None:
    starts = []
    for split in ("train", "eval"):
        vec_env = make_vec_env(robosuite(split=split), 1)
        vec_env.reset([0], [7])
        starts.append(vec_env.observations["observation"].copy())
        vec_env.close()
    assert not np.array_equal(*starts)


def test_shapes_for_collisions_are_not_drawn() -> None:
    """robosuite paints the arm's bright blue."""
    vec_env = make_vec_env(robosuite(camera="agentview", image_size=48), 1)
    try:
        vec_env.reset([0], [7])
        image = vec_env.observations["observation.image"][0].astype(int)
    finally:
        vec_env.close()
    assert image.std() > 20
    assert (image[..., 2] - image[..., 0]).max() < 60


def test_the_checker_finds_nothing_serious() -> None:
    assert [remark for remark in remarks_in_process(robosuite()) if remark.fatal] == []


def test_pictures_come_from_over_there() -> None:
    assert try_filming(panda()).problem is None
    vec_env = IsolatedVecEnv(panda(), 1, draws=True)
    try:
        vec_env.reset([0], [7])
        frame = vec_env.render(0)
    finally:
        vec_env.close()
    assert (frame.ndim, frame.shape[2], frame.dtype) == (3, 3, np.uint8)
    assert frame.std() > 0
