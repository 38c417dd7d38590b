"""LIBERO's own engine, task language, goals and start states (`make venvs/libero`), with stand-ins for its meshes."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from libero_stand_in import write_assets
from rlinf_envs.sim.libero_files import load_init_states

from rlinf.config import load
from rlinf.rollouts.isolation.vec_env import remarks_in_process
from rlinf.rollouts.vec_env.vec_env import VecEnv
from rlinf.rollouts.vec_env.vectorize import make_vec_env
from rlinf.schema import EnvConfig
from rlinf.train.run import run

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / "venvs" / "libero" / "bin" / "python"
SPATIAL_0 = "pick_up_the_black_bowl_between_the_plate_and_the_ramekin_and_place_it_on_the_plate"
# Where things are in a start state: after the time, the arm and its fingers come seven numbers for each thing, in the
# order of the task's file, and then the joints of the fixtures: three drawers from above, and the stove's knob.
FIRST = 1 + 9
BOWL_ON_PLATE = dict(enumerate([0.05, 0.2, 0.943], FIRST)) | dict(enumerate([0.05, 0.2, 0.909], FIRST + 4 * 7))
REACHED = {
    ("open_the_middle_drawer_of_the_cabinet", 0): {FIRST + 4 * 7 + 1: -0.15},
    ("put_the_bowl_on_top_of_the_cabinet", 4): dict(enumerate([0.0, -0.25, 1.2], FIRST)),
    ("turn_on_the_stove", 7): {FIRST + 4 * 7 + 3: 1.0},
}
"""Tasks of libero_goal by name and number, and what is to be changed in a start state for the goal to be reached."""

pytestmark = [pytest.mark.sim, pytest.mark.skipif(not PYTHON.exists(), reason="make venvs/libero")]


@pytest.fixture(scope="module")
def assets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_assets(tmp_path_factory.mktemp("libero") / "assets")


@pytest.fixture(autouse=True)
def no_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """LIBERO would request one on stdin; the user who runs the tests may have one."""
    monkeypatch.setenv("LIBERO_CONFIG_PATH", str(tmp_path / "no_config"))


def changed_states(folder: Path, suite: str, task: str, changes: dict[int, float]) -> Path:
    """Five of the benchmark's start states of a task, with some numbers changed, saved as the benchmark saves them."""
    package = next((PYTHON.parents[1] / "lib").glob("python*/site-packages/libero/libero"))
    states = load_init_states(package / "init_files" / suite / f"{task}.pruned_init")[:5]
    for index, number in changes.items():
        states[:, index] = number
    (folder / suite).mkdir(parents=True)
    torch.save(states, folder / suite / f"{task}.pruned_init")
    return folder


def options(assets: Path, **kwargs: Any) -> EnvConfig:
    return EnvConfig(
        "rlinf_envs:rlinf/Libero-v0",
        {"assets": str(assets), "image_size": 48, **kwargs},
        wrappers=["rlinf.rollouts.wrappers:TokenizeText"],
        isolation="process",
        python=str(PYTHON),
        step_timeout_s=200.0,
    )


def snapshot(vec_env: VecEnv) -> dict[str, np.ndarray]:
    return {name.removeprefix("observation."): leaf.copy() for name, leaf in vec_env.observations.items()}


def test_a_seed_fixes_start_and_trajectory_exactly(assets: Path) -> None:
    vec_env = make_vec_env(options(assets, max_steps=4), 2)
    try:
        assert vec_env.reset([0, 1], [7, 7]) == {}, vec_env.last_failure
        start = snapshot(vec_env)
        assert set(start) == {"image", "wrist_image", "state", "instruction_tokens"}
        assert all(np.array_equal(leaf[0], leaf[1]) for leaf in start.values())
        vec_env.action_space.seed(3)
        for step in range(4):
            action = vec_env.action_space.sample()
            result = vec_env.step([0, 1], np.stack([action, action]))
            assert result.failed == {}, vec_env.last_failure
            seen = snapshot(vec_env)
            assert all(np.array_equal(leaf[0], leaf[1]) for leaf in seen.values())
            assert not result.success.any()
            assert result.truncated.tolist() == [step == 3] * 2
        assert not np.array_equal(seen["image"], start["image"])
        vec_env.reset([0, 1], [8, 7])
        again = snapshot(vec_env)
        assert all(np.array_equal(leaf[1], start[name][1]) for name, leaf in again.items())
        assert not np.array_equal(again["state"][0], start["state"][0])
        assert not np.array_equal(again["image"][0], start["image"][0])
    finally:
        vec_env.close()


def test_pictures_are_upright_and_not_mirrored(assets: Path) -> None:
    """The camera faces the robot over the table: a grey wall on top, the table below, the red plate on the right."""
    vec_env = make_vec_env(options(assets), 1)
    try:
        vec_env.reset([0], [7])
        seen = snapshot(vec_env)
    finally:
        vec_env.close()
    image, wrist = seen["image"][0].astype(int), seen["wrist_image"][0]
    yellowness = image[..., 0] - image[..., 2]
    assert abs(yellowness[:6].mean()) < 10 < 20 < yellowness[-6:, 24:].mean()
    redness = image[..., 0] - image[..., 1]
    assert np.argwhere(redness > 80)[:, 1].min() > 24
    assert wrist.std() > 20


def test_the_two_sides_of_the_split_have_no_start_in_common(assets: Path) -> None:
    starts = {}
    for split in ("train", "eval"):
        vec_env = make_vec_env(options(assets, split=split, image_size=8, settle_steps=0), 1)
        starts[split] = set()
        for seed in range(15):
            vec_env.reset([0], [seed])
            starts[split].add(snapshot(vec_env)["state"].tobytes())
        vec_env.close()
    assert len(starts["train"]) > len(starts["eval"]) > 3
    assert starts["train"].isdisjoint(starts["eval"])


@pytest.mark.parametrize(("task", "number"), REACHED)
def test_the_goal_is_the_benchmarks(assets: Path, tmp_path: Path, task: str, number: int) -> None:
    for reached, changes in ((False, {}), (True, REACHED[task, number])):
        states = changed_states(tmp_path / str(reached), "libero_goal", task, changes)
        vec_env = make_vec_env(options(assets, suite="libero_goal", task=number, init_states=str(states)), 1)
        try:
            vec_env.reset([0], [7])
            result = vec_env.step([0], np.zeros((1, 7)))
        finally:
            vec_env.close()
        assert result.failed == {}, vec_env.last_failure
        assert (bool(result.success[0]), bool(result.terminated[0]), result.rewards[0]) == (reached, reached, reached)


def test_episodes_are_those_of_liberos_own_interface_bit_for_bit(assets: Path, tmp_path: Path) -> None:
    """Pictures with shadows, arm and fingers; after another episode, and next to an env of another task."""
    states = changed_states(tmp_path / "states", "libero_spatial", SPATIAL_0, {})
    alone = torch.load(states / "libero_spatial" / f"{SPATIAL_0}.pruned_init", weights_only=False)[:1]
    torch.save(alone, states / "libero_spatial" / f"{SPATIAL_0}.pruned_init")
    episodes = {}
    for kind in ("theirs", "ours", "two_envs"):
        script, out = ROOT / "tests" / "support" / "libero_engine.py", tmp_path / f"{kind}.npz"
        subprocess.run(
            [PYTHON, script, kind, assets, states, out],
            check=True,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'envs'}"},
        )
        episodes[kind] = np.load(out)
    for key in ("image", "wrist_image", "state"):
        for kind in ("ours", "two_envs"):
            np.testing.assert_array_equal(episodes[kind][key], episodes["theirs"][key], err_msg=f"{kind} {key}")
        assert len(np.unique(episodes["theirs"][key], axis=0)) == 9


def test_the_checker_finds_nothing_serious(assets: Path) -> None:
    assert [remark for remark in remarks_in_process(options(assets, max_steps=5)) if remark.fatal] == []


def test_the_recipe_trains_evaluates_and_films(assets: Path, tmp_path: Path) -> None:
    """Evaluated from starts where the bowl is on the plate already, so that success is one and not nought."""
    av = pytest.importorskip("av")
    states = changed_states(tmp_path / "states", "libero_spatial", SPATIAL_0, BOWL_ON_PLATE)
    overrides = [
        f"run.dir={tmp_path / 'run'}",
        f"env.kwargs.assets={assets}",
        "env.kwargs.max_steps=6",
        f"env.python={PYTHON}",
        "rollout.num_steps=8",
        f"evaluation.env_kwargs={{split: eval, end_on_success: false, init_states: {states}}}",
        "evaluation.video_every=1",
        "evaluation.video_episodes=1",
        "cluster.backend=local",
        "logging.progress=none",
    ]
    run(load(ROOT / "config" / "sim" / "libero_smoke.yaml", overrides))
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [0, 1]
    assert np.isfinite(rows[1]["train/loss"])
    assert rows[1]["rollout/success_once"] == 0.0
    assert rows[0]["eval/success_once"] == rows[0]["eval/success_at_end"] == 1.0
    assert rows[0]["eval/return"] == 6.0
    assert rows[1]["eval/success_once"] == 1.0  # a policy after one step of training may push the bowl off again
    with av.open(str(tmp_path / "run" / "videos" / "step_000001.mp4")) as film:
        frames = [frame.to_ndarray(format="rgb24") for frame in film.decode(video=0)]
    assert len(frames) == 7
    assert min(frame.std() for frame in frames) > 20
