"""Goal environments of other packages: rewards of relabelled goals, and a run with hindsight."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from rlinf.config import load
from rlinf.data.goals import ACHIEVED, DESIRED
from rlinf.rollouts.vec_env.sync import SyncVecEnv
from rlinf.schema import EnvConfig
from rlinf.train.run import run

pytestmark = pytest.mark.sim
RECIPE = Path(__file__).parents[2] / "config" / "sim" / "fetch_reach_her.yaml"
PACKAGES = {"gymnasium_robotics": "FetchReach-v4", "panda_gym": "PandaReach-v3"}


@pytest.mark.parametrize("package", PACKAGES)
def test_a_step_gets_the_reward_of_its_goal(package: str) -> None:
    pytest.importorskip(package)
    env = SyncVecEnv(EnvConfig(id=f"{package}:{PACKAGES[package]}"), 1)
    try:
        env.reset([0], [3])
        env.action_space.seed(0)
        for _ in range(10):
            result = env.step([0], np.stack([env.action_space.sample()]))
            achieved, desired = env.observations[ACHIEVED], env.observations[DESIRED]
            found = env.goal_rewards(np.concatenate([achieved, achieved]), np.concatenate([desired, achieved]))
            assert found.rewards.tolist() == [result.rewards[0], 0.0]
    finally:
        env.close()


def test_fetch_learns_with_hindsight(tmp_path: Path) -> None:
    pytest.importorskip("gymnasium_robotics")
    settings = [f"run.dir={tmp_path / 'run'}", "run.max_steps=8", "algorithm.replay_start=100", "evaluation.size=4"]
    quiet = ["cluster.backend=local", "logging.progress=none", "logging.tensorboard=false", "evaluation.every=0"]
    run(load(RECIPE, [*settings, *quiet]), report=False)
    last = json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[-1])
    assert -1.0 < last["train/relabelled_reward"] < 0.0
