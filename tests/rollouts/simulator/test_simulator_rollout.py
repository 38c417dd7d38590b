"""Rollouts of simulators: workers and sub-environments have no influence, ends are right, and a run goes on exactly."""

from __future__ import annotations

import copy
from functools import partial

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.envs.classic_control.cartpole import CartPoleEnv, CartPoleVectorEnv
from simulator_config import simulator_config
from worker_group import InThisProcess

from rlinf.algorithms.prepare import AlgorithmState, prepare_batch
from rlinf.data.messages import WeightUpdate
from rlinf.models.actor_critic import ActorCritic, ActorCriticOptions
from rlinf.rollouts.simulator.env_worker import EnvWorker
from rlinf.rollouts.simulator.failures import EnvFailureError
from rlinf.rollouts.simulator.rollout import VectorRollout, env_ranges
from rlinf.rollouts.vec_env.make_env import EnvNotFoundError, make_env
from rlinf.schema import EnvConfig

FAULTY = "rlinf_envs:rlinf/FaultyCartPole-v0"


class Unseeded(CartPoleEnv):
    """Starts do not follow the seed."""

    def reset(self, *, seed=None, options=None):
        return super().reset(options=options)


class Fuse(gymnasium.Env):
    """Ends after ``length`` steps, and takes none after that."""

    observation_space = gymnasium.spaces.Box(0.0, 100.0, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    length = 50

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        if self.steps == self.length:
            raise RuntimeError("the episode is over")
        self.steps += 1
        return np.full(1, self.steps, np.float32), 1.0, self.steps == self.length, False, {}


gymnasium.register("Unseeded-v0", entry_point=Unseeded, max_episode_steps=10)
gymnasium.register("Fuse-v0", entry_point=Fuse)


def build_policy(observation_space, action_space, options=None):
    torch.manual_seed(0)
    return ActorCritic(observation_space, action_space, options or ActorCriticOptions(hidden_sizes=(16,)))


def rollout(
    env_id="CartPole-v1", *, workers=1, num_envs=4, layout="fragments", policy=None, env=None, num_steps=40, **options
):
    config = simulator_config(EnvConfig(env_id, **(env or {})), layout, seed=3, num_steps=num_steps, **options)
    build = partial(build_policy, options=policy)
    group = InThisProcess([EnvWorker(config.collection, part, build) for part in env_ranges(num_envs, workers)])
    return VectorRollout(group, config.collection)


def same(one, other):
    assert one.actions.equal(other.actions)
    for name, tensor in one.inputs.named().items():
        torch.testing.assert_close(tensor, other.inputs.named()[name], rtol=0, atol=0)
    for name in ("mask", "rewards", "terminated", "truncated", "group_ids"):
        torch.testing.assert_close(getattr(one, name), getattr(other, name), rtol=0, atol=0)
    torch.testing.assert_close(one.rollout_logprobs, other.rollout_logprobs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("layout", ["fragments", "episodes"])
def test_the_number_of_workers_has_no_influence(layout):
    one = rollout(workers=1, layout=layout, groups=4, group_size=2)
    two = rollout(workers=2, layout=layout, groups=4, group_size=2)
    for step in range(3):
        same(one.collect(step)[0], two.collect(step)[0])


def test_neither_do_envs_nor_waves_on_whole_episodes():
    few = rollout(num_envs=2, layout="episodes", groups=4, group_size=2)
    many = rollout(num_envs=7, layout="episodes", groups=4, group_size=2)
    waves = rollout(num_envs=3, layout="episodes", groups=4, group_size=2, env={"auto_reset": False})
    expected = few.collect(0)[0]
    same(expected, many.collect(0)[0])
    same(expected, waves.collect(0)[0])


def test_members_of_a_group_start_alike_and_act_differently():
    batch, metrics = rollout(layout="episodes", groups=3, group_size=4).collect(0)
    starts = batch.inputs.observations["observation"][:, 0].unflatten(0, (3, 4))
    assert (starts == starts[:, :1]).all()
    assert not (starts[0, 0] == starts[1, 0]).all()
    assert batch.group_ids.tolist() == [0] * 4 + [1] * 4 + [2] * 4
    lengths = batch.mask.sum(1)
    assert len(lengths.unique()) > 1
    assert metrics["rollout/episode_len"] == pytest.approx(float(lengths.float().mean()))
    assert batch.rewards.sum(1).equal(lengths.float())
    last = torch.nn.functional.one_hot(lengths - 1, batch.num_positions).bool()
    assert (batch.terminated | batch.truncated).equal(last)


@pytest.mark.parametrize(("reward_type", "parts"), [("chunk_level", [0]), ("action_level", [0, 1])])
def test_decisions_that_saw_the_same_have_the_same_anchor(reward_type, parts):
    levels = {"reward_type": reward_type, "logprob_type": "action_level"}
    options = ActorCriticOptions(hidden_sizes=(16,), num_action_chunks=2, **levels)
    chunks = {"num_action_chunks": 2}
    it = rollout("Pendulum-v1", layout="episodes", groups=2, group_size=2, adv_type="gigpo", policy=options, env=chunks)
    batch, _ = it.collect(0)
    anchors = batch.turn_credit.anchor_ids.unflatten(1, (-1, 2))
    assert (anchors[:, :, parts] >= 0).all()
    assert (anchors[:, :, len(parts) :] == -1).all()
    first = anchors[:, 0, 0].tolist()
    assert first[0] == first[1] != first[2] == first[3]
    assert len(anchors[:, 1:, parts].unique()) == anchors[:, 1:, parts].numel()
    prepared, _ = prepare_batch(batch, it._config.algorithm, AlgorithmState.of(it._config.algorithm))
    assert prepared.advantages.isfinite().all()
    assert (prepared.advantages != 0).any()


def test_fragments_replay_exactly_in_a_plain_env():
    """Each sub-environment's rows are what the environment itself does, episode by episode, from the seeds that were
    given."""
    it = rollout(num_envs=2)
    batches = [it.collect(step)[0] for step in range(3)]
    observations = torch.cat([b.inputs.observations["observation"] for b in batches], 1).numpy()
    actions = torch.cat([b.actions for b in batches], 1).numpy()
    ended = torch.cat([b.terminated for b in batches], 1).numpy()
    collector = it._workers.workers[0]._fragments
    for env_index in range(2):
        env, episode = gymnasium.make("CartPole-v1"), 0
        collector._episode[env_index] = 0
        now, _ = env.reset(seed=collector._episode_seed(env_index) % 2**31)
        for timestep in range(120):
            np.testing.assert_array_equal(observations[env_index, timestep], now)
            now, _, terminated, _, _ = env.step(actions[env_index, timestep])
            assert terminated == ended[env_index, timestep]
            if terminated:
                episode += 1
                collector._episode[env_index] = episode
                now, _ = env.reset(seed=collector._episode_seed(env_index) % 2**31)
        assert episode > 2


def test_truncation_bootstraps_from_the_final_observation():
    it = rollout(num_envs=3, env={"max_episode_steps": 7})
    batch, _ = it.collect(0)
    assert batch.truncated[:, 6].all()
    assert not batch.terminated.any()
    worker = it._workers.workers[0]
    env = make_env(EnvConfig("CartPole-v1"))
    worker._fragments._episode[0] = 0
    env.reset(seed=worker._fragments._episode_seed(0) % 2**31)
    for timestep in range(7):
        final = env.step(int(batch.actions[0, timestep]))[0]
    value = worker._policy.values({"observation": torch.as_tensor(final)[None]}, torch.zeros(1, 0))
    torch.testing.assert_close(batch.bootstrap_values[0, 6], value[0])
    newest = worker._policy.values(
        {"observation": torch.as_tensor(worker._vec_env.observations["observation"])}, torch.zeros(3, 0)
    )
    torch.testing.assert_close(batch.bootstrap_values[:, -1], newest)


@pytest.mark.parametrize(
    ("env_id", "policy"),
    [
        ("CartPole-v1", None),
        ("Pendulum-v1", None),
        ("CartPole-v1", ActorCriticOptions(hidden_sizes=(8,), recurrent="gru", embedding_size=8)),
    ],
)
def test_a_resumed_rollout_goes_on_as_if_nothing_had_happened(env_id, policy):
    straight = rollout(env_id, workers=2, policy=policy, env={"normalize_rewards": True}, gamma=0.9)
    straight.collect(0)
    straight.collect(1)
    state = copy.deepcopy(straight.state_dict())
    expected, metrics = straight.collect(2)
    resumed = rollout(env_id, workers=2, policy=policy, env={"normalize_rewards": True}, gamma=0.9)
    resumed.load_state_dict(state)
    got, got_metrics = resumed.collect(2)
    same(expected, got)
    torch.testing.assert_close(expected.bootstrap_values, got.bootstrap_values, rtol=0, atol=0)
    for name in ("rollout/env_steps_total", "rollout/episodes"):
        assert metrics[name] == got_metrics[name]


def test_an_episode_that_does_not_repeat_is_not_continued_after_its_end(monkeypatch):
    before = rollout("Fuse-v0")
    before.collect(0)
    monkeypatch.setattr(Fuse, "length", 30)
    after = rollout("Fuse-v0")
    after.load_state_dict(copy.deepcopy(before.state_dict()))
    batch, metrics = after.collect(1)
    assert batch.inputs.observations["observation"][:, 0].tolist() == [[0.0]] * 4
    assert (metrics["env/failures"], metrics["rollout/episode_len"]) == (0.0, 30.0)


@pytest.mark.parametrize(("env_id", "other"), [("CartPole-v1", False), ("Unseeded-v0", True)])
def test_evaluations_that_do_not_begin_alike_are_marked(env_id, other):
    it = rollout(env_id, num_envs=2, env={"vectorization": "sync"})
    assert not it.evaluate(3).other_starts
    assert it.evaluate(3).other_starts is other


@pytest.mark.parametrize("layout", ["fragments", "episodes"])
def test_failures_are_dropped_counted_and_survived(layout):
    it = rollout(
        FAULTY,
        layout=layout,
        groups=6,
        group_size=4,
        env={
            "kwargs": {"raise_every": 100, "hang_every": 100, "nan_every": 100},
            "step_timeout_s": 0.05,
            "max_failures": 1000,
        },
    )
    for step in range(4):
        batch, metrics = it.collect(step)
        assert torch.isfinite(batch.rewards).all()
        assert batch.mask.any()
    assert metrics["env/failures"] > 0
    assert metrics["env/timeouts"] > 0
    assert metrics["env/nan"] > 0
    assert metrics["rollout/episodes"] > 0


def test_too_many_failures_stop_with_a_clear_message():
    it = rollout(FAULTY, env={"kwargs": {"raise_every": 5}, "max_failures": 10})

    def many_steps():
        for step in range(10):
            it.collect(step)

    with pytest.raises(EnvFailureError, match=r"env\.max_failures"):
        many_steps()


def test_failures_of_all_workers_together_are_reported_with_the_newest():
    it = rollout(FAULTY, num_envs=4, workers=2, env={"kwargs": {"raise_every": 8}, "max_failures": 3})

    def many_steps():
        for step in range(10):
            it.collect(step)

    with pytest.raises(EnvFailureError, match=r"(?s)a simulated fault.*failed.*env.max_failures allows 3"):
        many_steps()


def test_a_process_per_env_gives_the_same_and_survives_hangs():
    env = {"kwargs": {"raise_every": 40}}
    here = rollout(FAULTY, num_envs=2, env={**env, "vectorization": "sync"})
    there = rollout(FAULTY, num_envs=2, env={**env, "vectorization": "async"})
    same(here.collect(0)[0], there.collect(0)[0])
    there._workers.workers[0].close()
    hanging = rollout(
        FAULTY, num_envs=1, env={"kwargs": {"hang_every": 15}, "vectorization": "async", "step_timeout_s": 0.5},
        num_steps=20,
    )  # fmt: skip
    _, metrics = hanging.collect(0)
    assert metrics["env/timeouts"] >= 1
    hanging._workers.workers[0].close()


class UnknownVectorCartPole(CartPoleVectorEnv):
    """A vector implementation without a way to seed each sub-environment."""


def test_native_vector_envs_never_train_on_the_reset_step():
    if "UnknownCartPole-v0" not in gymnasium.registry:
        gymnasium.register("UnknownCartPole-v0", CartPoleEnv, vector_entry_point=UnknownVectorCartPole)
    it = rollout("UnknownCartPole-v0", num_envs=8, env={"vectorization": "native"}, num_steps=60)
    batch, metrics = it.collect(0)
    after_end = torch.zeros_like(batch.mask)
    after_end[:, 1:] = batch.terminated[:, :-1]
    assert after_end.any()
    assert batch.mask.equal(~after_end)
    assert metrics["rollout/env_steps"] == int(batch.mask.sum())
    assert metrics["rollout/episodes"] == int(batch.terminated.sum())


@pytest.mark.parametrize("recurrent", ["none", "gru"])
@pytest.mark.parametrize("layout", ["fragments", "episodes"])
def test_a_seeded_native_vector_env_gives_the_same_as_one_env_at_a_time(layout, recurrent):
    """Bit for bit, over ends, new starts and time limits, with sub-environments that are busy and sub-environments that
    are not.

    A recurrent state carries the rounding of every product on, and so shows how observations lie in memory.
    """
    kinds = [
        rollout(
            num_envs=5,
            layout=layout,
            groups=3,
            group_size=3,
            policy=ActorCriticOptions(hidden_sizes=(16,), recurrent=recurrent, embedding_size=8),
            env={"vectorization": kind, "max_episode_steps": 30},
            num_steps=100,
        )
        for kind in ("sync", "native", "auto")
    ]
    for step in range(2):
        sync, *others = [it.collect(step) for it in kinds]
        for batch, metrics in others:
            same(sync[0], batch)
            for name in ("rollout/return", "rollout/episode_len", "rollout/env_steps"):
                assert metrics[name] == sync[1][name]
    assert sync[0].terminated.any()
    assert sync[0].truncated.any()
    assert kinds[0].evaluate(3) == kinds[1].evaluate(3)


def test_a_native_rollout_resumes_where_one_env_at_a_time_stopped():
    """Replaying steps sub-environments one by one; the others must not move meanwhile."""
    before = rollout(env={"vectorization": "sync"})
    before.collect(0)
    after = rollout(env={"vectorization": "native"})
    after.load_state_dict(copy.deepcopy(before.state_dict()))
    same(before.collect(1)[0], after.collect(1)[0])


def test_chunks_stop_at_the_end_of_the_episode():
    policy = build_policy
    options = EnvConfig("Pendulum-v1", num_action_chunks=3, max_episode_steps=8)
    worker = EnvWorker(
        simulator_config(options, num_steps=6),
        range(2),
        partial(policy, options=ActorCriticOptions(hidden_sizes=(8,), num_action_chunks=3)),
    )
    part = worker.collect(0)
    assert part.batch.actions.shape == (2, 6, 3)
    assert part.batch.truncated.tolist() == [[False, False, True, False, False, True]] * 2
    assert part.env_steps == 2 * 16
    assert [record.length for record in part.episodes] == [8] * 4


def test_evaluation_depends_on_its_own_seed_only():
    one, two = rollout(workers=1), rollout(workers=2)
    two.collect(0)
    assert one.evaluate(5) == two.evaluate(5)
    assert len(one.evaluate(5).records) == 5


def test_weights_arrive_and_have_a_version():
    it = rollout()
    space = gymnasium.make("CartPole-v1")
    torch.manual_seed(7)
    other = ActorCritic(space.observation_space, space.action_space, ActorCriticOptions(hidden_sizes=(16,)))
    it._workers.call("load", WeightUpdate(5, dict(other.weights())))
    batch, _ = it.collect(0)
    assert (batch.policy_version == 5).all()
    output = other.evaluate(batch.inputs, batch.actions, batch.mask)
    torch.testing.assert_close(output.logprobs, batch.rollout_logprobs)


def test_names_that_do_not_exist_are_explained():
    with pytest.raises(EnvNotFoundError, match="package:Id"):
        make_env(EnvConfig("NoSuchThing-v0"))
    with pytest.raises(EnvNotFoundError, match="not installed"):
        make_env(EnvConfig("no_such_module:Thing-v0"))
    with pytest.raises(EnvNotFoundError, match="NoSuchWrapper"):
        make_env(EnvConfig("CartPole-v1", wrappers=["NoSuchWrapper"]))


class Counted(CartPoleEnv):
    """Counts those that are open."""

    opened = 0

    def __init__(self):
        super().__init__()
        Counted.opened += 1

    def close(self):
        Counted.opened -= 1
        super().close()


def test_environments_of_evaluations_are_closed_with_their_worker():
    gymnasium.register("Counted-v0", Counted, max_episode_steps=5)
    try:
        made = rollout("Counted-v0", num_envs=2, num_steps=4)
        made.evaluate(2)
        assert Counted.opened > 2
        for worker in made._workers.workers:
            worker.close()
        assert Counted.opened == 0
    finally:
        del gymnasium.registry["Counted-v0"]
