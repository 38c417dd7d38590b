"""The smallest task with a sparse reward."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from rlinf_envs.sim.reach import SparseReachEnv


def test_the_demonstrator_always_gets_there_and_chance_does_not() -> None:
    env = SparseReachEnv()
    check_env(env, skip_render_check=True)
    returns = {}
    for name in ("expert", "chance"):
        env.action_space.seed(0)
        totals = []
        for seed in range(20):
            env.reset(seed=seed)
            over, total = False, 0.0
            while not over:
                action = env.expert_action() if name == "expert" else env.action_space.sample()
                _, reward, terminated, over, info = env.step(action)
                assert not terminated
                assert reward == float(info["success"]) - 1.0
                total += reward
            totals.append((total, info["success"]))
        returns[name] = totals
    assert all(success for _, success in returns["expert"])
    assert min(total for total, _ in returns["expert"]) > -25
    assert np.mean([success for _, success in returns["chance"]]) < 0.1


def test_a_seed_fixes_the_start() -> None:
    env = gymnasium.make("rlinf_envs:rlinf/SparseReach-v0")
    first, again, other = (env.reset(seed=seed)[0] for seed in (3, 3, 4))
    assert first == pytest.approx(again)
    assert not np.array_equal(first, other)
