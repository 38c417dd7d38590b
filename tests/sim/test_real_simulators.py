"""Real robot simulators: made by their ids, equal starts for the members of a group, and one step of PPO."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlinf.commands.env_check import examine_env
from rlinf.config import load, load_mapping
from rlinf.rollouts.vec_env.vec_env import VecEnv
from rlinf.rollouts.vec_env.vectorize import make_vec_env
from rlinf.schema import EnvConfig
from rlinf.train import run

pytestmark = pytest.mark.sim


@dataclass(frozen=True)
class Simulator:
    """One of them, and the module that must be there."""

    module: str
    id: str
    kwargs: dict[str, Any] = field(default_factory=dict)
    wrappers: tuple[Any, ...] = ()
    success_key: str = "success"
    reports_success: bool = True


SIMULATORS = {
    "mujoco": Simulator("mujoco", "HalfCheetah-v5", reports_success=False),
    "metaworld": Simulator("metaworld", "rlinf_envs:rlinf/MetaWorld-v0", {"task": "reach-v3"}),
    "minigrid": Simulator(
        "minigrid",
        "rlinf_envs:rlinf/MiniGrid-v0",
        {"task": "BabyAI-GoToObj-v0", "num_actions": 3},
        ("rlinf.rollouts.wrappers:TokenizeText",),
    ),
    "maniskill": Simulator("mani_skill", "rlinf_envs:rlinf/ManiSkill-v0", {"task": "PushCube-v1"}),
    "robotics": Simulator(
        "gymnasium_robotics",
        "gymnasium_robotics:FetchReachDense-v4",
        wrappers=["FlattenObservation"],
        success_key="is_success",
    ),
    "atari": Simulator(
        "ale_py",
        "ale_py:ALE/Pong-v5",
        {"frameskip": 1},
        ({"AtariPreprocessing": {"noop_max": 30, "frame_skip": 4}},),
        reports_success=False,
    ),
}


@pytest.fixture(params=sorted(SIMULATORS))
def simulator(request: pytest.FixtureRequest) -> Simulator:
    found = SIMULATORS[request.param]
    pytest.importorskip(found.module)
    return found


@pytest.fixture
def vec_env(simulator: Simulator) -> Any:
    options = EnvConfig(
        simulator.id,
        simulator.kwargs,
        wrappers=list(simulator.wrappers),
        vectorization="sync",
        success_key=simulator.success_key,
    )
    made = make_vec_env(options, 3)
    yield made
    made.close()


def snapshot(vec_env: VecEnv) -> dict[str, np.ndarray]:
    return {name: leaf.copy() for name, leaf in vec_env.observations.items()}


def same(leaves: dict[str, np.ndarray], one: int, other: int) -> bool:
    return all(np.array_equal(leaf[one], leaf[other]) for leaf in leaves.values())


def test_a_seed_fixes_start_and_trajectory_exactly(vec_env: VecEnv) -> None:
    assert vec_env.reset([0, 1, 2], [7, 7, 8]) == {}
    start = snapshot(vec_env)
    assert same(start, 0, 1)
    assert not same(start, 0, 2)
    vec_env.action_space.seed(3)
    for _ in range(10):
        action = vec_env.action_space.sample()
        result = vec_env.step([0, 1], np.stack([action, action]))
        assert result.failed == {}
        assert result.rewards[0] == result.rewards[1]
        assert same(vec_env.observations, 0, 1)
    # A sub-environment with a past starts where a fresh one does.
    vec_env.reset([2], [7])
    restarted = snapshot(vec_env)
    for name, leaf in start.items():
        np.testing.assert_array_equal(restarted[name][2], leaf[0], err_msg=name)


def test_gymnasiums_checker_finds_nothing_serious(simulator: Simulator) -> None:
    sections = {
        "env": {"id": simulator.id, "kwargs": simulator.kwargs, "wrappers": list(simulator.wrappers)},
        "policy": {"name": "actor_critic"},
        "algorithm": {"group_size": 2},
    }
    found = examine_env(load_mapping(sections, source="test"))
    assert [finding for finding in found if finding.serious] == []


def test_one_step_of_ppo(simulator: Simulator, tmp_path: Path) -> None:
    sections = {
        "run": {"dir": str(tmp_path / "run"), "max_steps": 1},
        "env": {
            "id": simulator.id,
            "kwargs": simulator.kwargs,
            "wrappers": list(simulator.wrappers),
            "success_key": simulator.success_key,
            "num_envs": 2,
            "max_episode_steps": 20,
        },
        "policy": {"name": "actor_critic", "hidden_sizes": [16]},
        "rollout": {"num_steps": 24},
        "algorithm": {"adv_type": "gae", "loss_type": "actor_critic", "num_minibatches": 2},
        "learner": {"optimizer": {"lr": 1e-3}},
        "cluster": {"backend": "local"},
        "evaluation": {"size": 2, "num_envs": 2},
        "logging": {"progress": "none", "tensorboard": False},
    }
    run(load_mapping(sections, source="test"), report=False)
    output = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert output["status"] == "completed"
    assert output["metrics"]["eval/return/n"] == 2
    assert output["metrics"]["eval/episode_len"] <= 20
    assert ("eval/success_once" in output["metrics"]) == simulator.reports_success
    last = json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[-1])
    assert np.isfinite(last["train/loss"])
    assert last["rollout/env_steps"] == 48


def test_meta_world_begins_from_the_state_of_a_number() -> None:
    pytest.importorskip("metaworld")
    world = SIMULATORS["metaworld"]
    named = make_vec_env(EnvConfig(world.id, world.kwargs, reset_state_ids=[3], vectorization="sync"), 2)
    other = make_vec_env(EnvConfig(world.id, world.kwargs, reset_state_ids=[4], vectorization="sync"), 1)
    named.reset([0, 1], [10, 11])
    other.reset([0], [10])
    assert same(named.observations, 0, 1)
    assert not np.array_equal(named.observations["observation"][0], other.observations["observation"][0])
    for made in (named, other):
        made.close()


def test_pong_is_played_and_learned_from_by_dqn(tmp_path: Path) -> None:
    """A smoke test of the recipe: stacked frames arrive, priorities move, the Q-network's weights too."""
    pytest.importorskip("ale_py")
    small = ["env.num_envs=2", "rollout.num_steps=16", "run.max_steps=3", "algorithm.replay_start=32"]
    quiet = ["cluster.backend=local", "logging.progress=none", "logging.tensorboard=false"]
    quiet += ["evaluation.size=0", "evaluation.every=0", "evaluation.num_envs=16"]
    short = ["algorithm.replay_capacity=200", "algorithm.replay_ratio=0.1", f"run.dir={tmp_path}/run"]
    run(load("pong_dqn", [*small, *quiet, *short]))
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert lines[-1]["train/updates"] == 6
    assert lines[-1]["train/replay_size"] == 96
    assert np.isfinite(lines[-1]["train/critic_loss"])
