"""VecNormalize's files: the same normalisation as Stable-Baselines3's, in a run, without running the pickle's code."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rlinf.config import ConfigErrors, load_mapping
from rlinf.data.batch import Batch
from rlinf.data.vec_normalize import StatisticsError, read_statistics
from rlinf.rollouts.simulator.reward_normalizer import RewardNormalizer
from rlinf.train.assemble.simulator_policy import make_policy

pytestmark = pytest.mark.peers


def saved(folder: Path, env_id: str = "Pendulum-v1", **kwargs: Any) -> tuple[Any, Path]:
    """A VecNormalize that has seen some steps, and its file."""
    util = pytest.importorskip("stable_baselines3.common.env_util")
    from stable_baselines3.common.vec_env import VecNormalize

    env = VecNormalize(util.make_vec_env(env_id, 2, seed=3, env_kwargs=kwargs), gamma=0.9)
    env.action_space.seed(1)
    env.reset()
    for _ in range(40):
        env.step(np.stack([env.action_space.sample() for _ in range(2)]))
    env.save(str(folder / "vecnormalize.pkl"))
    return env, folder / "vecnormalize.pkl"


def configured(path: Path, **env: object) -> Any:
    sections = {"id": "Pendulum-v1", "normalize_observations": True, "normalize_from": str(path), **env}
    return load_mapping(
        {
            "env": sections,
            "policy": {"name": "actor_critic", "hidden_sizes": [8]},
            "algorithm": {"adv_type": "gae", "loss_type": "actor_critic", "gamma": 0.9},
        }
    )


def test_observations_and_rewards_are_normalised_as_there(tmp_path: Path) -> None:
    env, path = saved(tmp_path)
    policy: Any = make_policy(configured(path), env.observation_space, env.action_space)
    seen = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32) * 3
    for encoder in (policy.encoder, policy.critic_encoder):
        ours = encoder({"observation": torch.from_numpy(seen)}).numpy()
        np.testing.assert_allclose(ours, env.normalize_obs(seen), rtol=1e-5, atol=1e-6)
    returns = read_statistics(path).returns
    assert returns is not None
    normalizer = RewardNormalizer(0.9)
    normalizer.begin_with(returns)
    rewards = torch.full((1, 1), -3.0)
    none = torch.zeros(1, 1, dtype=torch.bool)
    batch: Any = {"rewards": rewards, "mask": ~none, "terminated": none, "truncated": none}
    scaled = normalizer(_batch(**batch)).rewards
    env.ret_rms.update(rewards.numpy()[0])
    np.testing.assert_allclose(scaled.numpy(), env.normalize_reward(rewards.numpy()), rtol=1e-5)


def _batch(**columns: Any) -> Batch:
    from rlinf.data.inputs import named_inputs

    shape = columns["rewards"].shape
    return Batch(
        inputs=named_inputs({"observation": torch.zeros(*shape, 1)}),
        actions=torch.zeros(*shape, 1),
        rollout_logprobs=torch.zeros(shape),
        group_ids=torch.zeros(shape[0], dtype=torch.int64),
        policy_version=torch.zeros(shape, dtype=torch.int32),
        **columns,
    )


def test_each_part_of_a_dict_has_its_own(tmp_path: Path) -> None:
    import rlinf_envs  # noqa: F401

    env, path = saved(tmp_path, "rlinf/SparseReach-v0", goals=True)
    found = read_statistics(path).observations
    assert set(found) == {f"observation.{name}" for name in ("observation", "achieved_goal", "desired_goal")}
    np.testing.assert_array_equal(found["observation.desired_goal"].mean, env.obs_rms["desired_goal"].mean)


def test_other_observations_are_named(tmp_path: Path) -> None:
    _, path = saved(tmp_path)
    import gymnasium

    other = gymnasium.make("CartPole-v1")
    with pytest.raises(StatisticsError, match="of observation have 3 entries, the environment's 4"):
        make_policy(configured(path), other.observation_space, other.action_space)


def test_a_pickle_of_anything_else_runs_nothing(tmp_path: Path) -> None:
    class Harmful:
        def __reduce__(self) -> Any:
            return (Path.touch, (tmp_path / "harm",))

    path = tmp_path / "vecnormalize.pkl"
    for content in (pickle.dumps(Harmful()), b"no pickle", b""):
        path.write_bytes(content)
        with pytest.raises(StatisticsError, match="is no file of Stable-Baselines3's VecNormalize"):
            read_statistics(path)
    assert not (tmp_path / "harm").exists()


def test_a_file_without_reader_or_that_is_missing_is_named(tmp_path: Path) -> None:
    _, path = saved(tmp_path)
    with pytest.raises(ConfigErrors, match=r"normalize_from is not read without env.normalize_observations"):
        configured(path, normalize_observations=False)
    with pytest.raises(ConfigErrors, match=r"absent.pkl does not exist"):
        configured(tmp_path / "absent.pkl")
