"""The pieces below the rollout: deadlines, wrappers, reward scaling, which sub-environments are chosen."""

from __future__ import annotations

import time
from dataclasses import replace

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv

from rlinf.data.batch import Batch
from rlinf.data.inputs import ObservationInputs
from rlinf.rollouts.deadline import DeadlineExceededError, deadline
from rlinf.rollouts.simulator.reward_normalizer import RewardNormalizer
from rlinf.rollouts.vec_env.make_env import EnvArgumentsError, EnvNotFoundError, make_env, native_entry_point
from rlinf.rollouts.vec_env.seeded_native import SeededNativeVecEnv
from rlinf.rollouts.vec_env.sync import SyncVecEnv
from rlinf.rollouts.vec_env.vectorize import choose_vec_env, make_vec_env
from rlinf.rollouts.wrappers import KeepEntries, TokenizeText
from rlinf.schema import EnvConfig


def test_a_deadline_breaks_off_a_sleep_and_leaves_no_timer():
    began = time.monotonic()
    with pytest.raises(DeadlineExceededError), deadline(0.05):
        time.sleep(5)
    assert time.monotonic() - began < 2
    with deadline(0.05):
        pass
    time.sleep(0.1)


class Chat(gymnasium.Env):
    """An observation with text in it."""

    observation_space = spaces.Dict({"mission": spaces.Text(40), "state": spaces.Box(0, 1, (2,))})
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return {"mission": "go to the red ball", "state": np.zeros(2, np.float32)}, {}

    def step(self, action):
        return self.reset()[0], 1.0, True, False, {}


def test_text_becomes_tokens_that_every_process_agrees_on():
    env = TokenizeText(Chat(), max_words=8)
    observation, _ = env.reset()
    assert env.observation_space.contains(observation)
    tokens = observation["mission_tokens"]
    assert (tokens[:5] > 0).all()
    assert (tokens[5:] == 0).all()
    assert tokens[0] == env.tokens("GO home")[0]
    assert tokens.tolist() == TokenizeText(Chat(), max_words=8).reset()[0]["mission_tokens"].tolist()


class Single(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (2,))
    action_space = gymnasium.spaces.Discrete(2)


def test_a_class_of_one_environment_needs_no_registration():
    options = EnvConfig(id=f"{__name__}:Single", max_episode_steps=5)
    assert isinstance(make_env(options).unwrapped, Single)
    assert native_entry_point(options.id) is None


def test_frames_are_stacked_and_terminations_ignored():
    env = make_env(EnvConfig("CartPole-v1", frame_stack=3, ignore_terminations=True, max_episode_steps=30))
    observation, _ = env.reset(seed=0)
    assert observation.shape == (3, 4)
    ends = [env.step(0)[2:4] for _ in range(30)]
    assert not any(terminated for terminated, _ in ends)
    assert [truncated for _, truncated in ends] == [False] * 29 + [True]


@pytest.mark.peers
def test_stacked_frames_begin_with_zeros_as_those_of_stable_baselines3():
    vec_env = pytest.importorskip("stable_baselines3.common.vec_env")
    theirs = vec_env.VecFrameStack(vec_env.DummyVecEnv([lambda: gymnasium.make("CartPole-v1")]), 3)
    theirs.seed(5)
    ours = make_env(EnvConfig("CartPole-v1", frame_stack=3, frame_padding="zero"))
    seen, _ = ours.reset(seed=5)
    other = theirs.reset()
    for action in (0, 1, 1, 0):
        np.testing.assert_array_equal(seen.reshape(-1), other[0])
        seen, other = ours.step(action)[0], theirs.step(np.array([action]))[0]


def test_wrappers_take_arguments():
    rescaled = {"RescaleAction": {"min_action": -1.0, "max_action": 1.0}}
    env = make_env(EnvConfig("Pendulum-v1", wrappers=[rescaled, "FlattenObservation"], max_episode_steps=9))
    assert env.action_space == spaces.Box(-1.0, 1.0, (1,), np.float32)
    with pytest.raises(EnvArgumentsError, match="RescaleAction requires min_action and max_action, and is c"):
        make_env(EnvConfig("Pendulum-v1", wrappers=["RescaleAction"]))
    with pytest.raises(EnvArgumentsError, match=r"requires min_action \(did you mean min_acton\?\) and max_action"):
        make_env(EnvConfig("Pendulum-v1", wrappers=[{"RescaleAction": {"min_acton": -1.0}}]))
    with pytest.raises(EnvNotFoundError, match=r"did you mean RescaleAction\?"):
        make_env(EnvConfig("Pendulum-v1", wrappers=["RescaleActions"]))
    with pytest.raises(EnvArgumentsError, match=r"env\.kwargs do not fit .*: it takes no gravty; it takes"):
        make_env(EnvConfig("Pendulum-v1", {"gravty": 3}))


def test_cheap_environments_stay_in_this_process():
    assert isinstance(make_vec_env(EnvConfig("CartPole-v1"), 2, cores=4), SyncVecEnv)
    with pytest.raises(EnvNotFoundError, match="no vector env"):
        make_vec_env(EnvConfig("Pendulum-v1", vectorization="native"), 2)
    with pytest.raises(ValueError, match="wrappers"):
        make_vec_env(replace(EnvConfig("CartPole-v1", vectorization="native"), frame_stack=2), 2)


def test_a_native_vector_env_is_chosen_by_measurement_and_the_reason_reported(monkeypatch):
    choice = choose_vec_env(EnvConfig("CartPole-v1"), 256)
    assert choice.kind == "native"
    assert choice.step_us["native"] < choice.step_us["sync"]
    assert str(choice).startswith("native (microseconds a step and sub-environment: sync ")
    assert isinstance(make_vec_env(EnvConfig("CartPole-v1"), 256), SeededNativeVecEnv)
    assert choose_vec_env(EnvConfig("CartPole-v1", frame_stack=2), 256).kind == "sync"
    assert choose_vec_env(EnvConfig("Pendulum-v1"), 256).kind == "sync"
    monkeypatch.setattr(CartPoleVectorEnv, "reset", unlike(CartPoleVectorEnv.reset))
    other = choose_vec_env(EnvConfig("CartPole-v1"), 256)
    assert other.kind == "sync"
    assert "other episodes" in other.reason


def unlike(reset):
    """A vector implementation whose physics differs from the single environment's."""

    def heavier(self, **options):
        self.gravity = 9.9
        return reset(self, **options)

    return heavier


def test_rewards_are_scaled_by_the_spread_of_discounted_returns():
    torch.manual_seed(0)
    rewards = torch.randn(4, 500)
    ended = torch.zeros(4, 500, dtype=torch.bool)
    ended[:, 99::100] = True
    batch = Batch(
        inputs=ObservationInputs({}),
        actions=torch.zeros(4, 500),
        mask=torch.ones(4, 500, dtype=torch.bool),
        rollout_logprobs=torch.zeros(4, 500),
        rewards=rewards,
        group_ids=torch.arange(4),
        policy_version=torch.zeros(4, 500, dtype=torch.int32),
        terminated=ended,
    )
    returns, running = [], torch.zeros(4)
    for timestep in range(500):
        running = 0.9 * running + rewards[:, timestep]
        returns.append(running)
        running = torch.where(ended[:, timestep], 0.0, running)
    spread = torch.stack(returns).std(correction=0)
    torch.testing.assert_close(RewardNormalizer(0.9)(batch).rewards, rewards / spread)
    halves = RewardNormalizer(0.9)
    for part in (slice(0, 250), slice(250, 500)):
        names = ("actions", "mask", "rollout_logprobs", "policy_version", "terminated")
        columns = {name: getattr(batch, name)[:, part] for name in names}
        last = halves(batch.replace(rewards=rewards[:, part], **columns))
    torch.testing.assert_close(last.rewards, (rewards / spread)[:, 250:])


def test_entries_are_kept_in_their_order():
    env = make_env(EnvConfig("Pendulum-v1", wrappers=[{"rlinf.rollouts.wrappers:KeepEntries": {"entries": [1, 0]}}]))
    whole, _ = gymnasium.make("Pendulum-v1").reset(seed=3)
    seen, _ = env.reset(seed=3)
    assert seen.tolist() == whole[[1, 0]].tolist()
    assert env.observation_space == spaces.Box(-1.0, 1.0, (2,), np.float32)
    assert env.observation_space.contains(env.step(env.action_space.sample())[0])
    with pytest.raises(ValueError, match="not among 0 to 2"):
        KeepEntries(gymnasium.make("Pendulum-v1"), [3])
    with pytest.raises(TypeError, match="one row of numbers"):
        KeepEntries(gymnasium.make("FrozenLake-v1"), [0])
