"""Rewards of other goals: here and in another process alike, and what an environment must have for them."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from rlinf.config import load_mapping
from rlinf.data.goals import require_goals
from rlinf.data.spaces import SpaceError
from rlinf.rollouts.isolation.vec_env import IsolatedVecEnv
from rlinf.rollouts.vec_env.goal_rewards import goal_rewards
from rlinf.rollouts.vec_env.sync import SyncVecEnv
from rlinf.schema import EnvConfig


@pytest.mark.parametrize("env_id", ["rlinf/BitFlip-v0", "rlinf/SparseReach-v0"])
def test_another_process_gives_the_same_rewards(env_id: str) -> None:
    options = EnvConfig(id=f"rlinf_envs:{env_id}", kwargs={} if "Bit" in env_id else {"goals": True})
    achieved = np.random.default_rng(0).integers(2, size=(20, 8 if "Bit" in env_id else 3)).astype(np.float32)
    desired = achieved[np.random.default_rng(1).permutation(20)]
    here, there = SyncVecEnv(options, 1), IsolatedVecEnv(options, 1)
    try:
        one, two = (env.goal_rewards(achieved, desired) for env in (here, there))
    finally:
        here.close()
        there.close()
    assert one.rewards.tolist() == two.rewards.tolist() == ((achieved == desired).all(1) - 1.0).tolist()
    assert (one.terminated is None) == (two.terminated is None) == ("Bit" not in env_id)
    if one.terminated is not None and two.terminated is not None:
        assert one.terminated.tolist() == two.terminated.tolist() == (one.rewards == 0.0).tolist()


class _Odd(gymnasium.Env):
    observation_space, action_space = spaces.Box(0, 1), spaces.Discrete(2)

    def __init__(self, gives: Any) -> None:
        self._gives = gives

    def compute_reward(self, achieved: np.ndarray, desired: np.ndarray, info: object) -> Any:
        return self._gives(achieved)


@pytest.mark.parametrize(
    ("gives", "message"),
    [(lambda goals: 0.0, "of shape \\(\\) for 3 rows"), (lambda goals: goals[7], "compute_reward failed: IndexError")],
)
def test_a_reward_of_another_form_is_named(gives: Any, message: str) -> None:
    with pytest.raises(SpaceError, match=message):
        goal_rewards(_Odd(gives), np.zeros((3, 2)), np.zeros((3, 2)))


def test_an_environment_without_goals_is_named() -> None:
    with pytest.raises(SpaceError, match=r"lack observation\.achieved_goal and observation\.desired_goal"):
        require_goals(["observation"], "Pendulum-v1")
    with pytest.raises(SpaceError, match="CartPoleEnv has no method compute_reward"):
        goal_rewards(gymnasium.make("CartPole-v1"), np.zeros((1, 2)), np.zeros((1, 2)))


def test_check_finds_both_before_a_run() -> None:
    from rlinf.commands.env_check import examine_env

    config = load_mapping(
        {
            "env": {"id": "Pendulum-v1"},
            "policy": {"name": "actor_critic"},
            "algorithm": {"loss_type": "sac", "hindsight": "future"},
        }
    )
    assert any(found.serious and "lack observation.achieved_goal" in found.message for found in examine_env(config))
