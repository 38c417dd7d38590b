"""SAC's networks, its replay buffer and its learner."""

from __future__ import annotations

import copy
import dataclasses
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from decisions import decide
from gymnasium import spaces

from rlinf.config.schema import AlgorithmConfig, OptimizerConfig
from rlinf.inputs import named_inputs
from rlinf.learners.replay import ReplayBuffer
from rlinf.learners.sac import SacLearner
from rlinf.models.actor_critic import ActorCriticOptions
from rlinf.models.soft_actor_critic import SoftActorCritic
from rlinf.streams import torch_generator
from rlinf.types import Batch

STATE = spaces.Box(-1, 1, (3,))
ARM = spaces.Box(np.array([-2.0, 0.0], np.float32), np.array([2.0, 1.0], np.float32))


OPTIMIZER = OptimizerConfig(lr=3e-4)


def replay(**options):
    return AlgorithmConfig(gamma=0.99, replay_start=10, replay_batch_size=16, n_step=2, **options)


def make_policy(seed=0):
    torch.manual_seed(seed)
    return SoftActorCritic(STATE, ARM, ActorCriticOptions(hidden_sizes=(16, 16), activation="relu"))


def fragment(num_envs=2, positions=20, first=0.0, ends=(), terminates=(), invalid=()):
    """Rewards count 0, 1, 2, ... in every sub-environment; observations hold the same number."""
    number = first + torch.arange(positions, dtype=torch.float32).expand(num_envs, positions)
    flags = torch.zeros(3, num_envs, positions, dtype=torch.bool)
    flags[0, :, list(terminates)] = True
    flags[1, :, list(ends)] = True
    flags[2, :, list(invalid)] = True
    return Batch(
        inputs=named_inputs(
            {
                "observation": number[..., None].repeat(1, 1, 3),
                "next_observation": number[..., None].repeat(1, 1, 3) + 1,
            }
        ),
        actions=torch.zeros(num_envs, positions, 2),
        mask=~flags[2],
        rollout_logprobs=torch.zeros(num_envs, positions),
        rewards=number,
        group_ids=torch.arange(num_envs),
        policy_version=torch.zeros(num_envs, positions, dtype=torch.int32),
        terminated=flags[0],
        truncated=flags[1],
    )


def test_an_episode_is_evaluated_as_its_decisions_one_by_one():
    policy = make_policy()
    inputs = {"observation": torch.randn(6, 3)}
    actions, said, _ = decide(policy, inputs, seed=0)
    whole = {"observation": inputs["observation"].unflatten(0, (2, 3))}
    again = policy.evaluate(named_inputs(whole), actions.unflatten(0, (2, 3)), torch.ones(2, 3, dtype=torch.bool))
    torch.testing.assert_close(again.logprobs.flatten(), said.logprobs.flatten())
    assert all(ARM.contains(action) for action in policy.env_actions(actions.numpy()))
    with pytest.raises(TypeError, match="continuous"):
        SoftActorCritic(STATE, spaces.Discrete(2), ActorCriticOptions())


def test_n_step_returns_stop_at_ends_and_bootstrap_after_truncation_only():
    buffer = ReplayBuffer(1000)
    buffer.add(fragment(ends=[4], terminates=[9]))
    got = buffer.sample(4000, gamma=0.5, n_step=3, generator=torch.Generator().manual_seed(0))
    at = got.inputs["observation"][:, 0]
    expected = {  # position: (reward, discount, observation after)
        0: (0 + 0.5 * 1 + 0.25 * 2, 0.125, 3),
        3: (3 + 0.5 * 4, 0.25, 5),  # truncated after two steps: bootstraps from the final observation
        4: (4.0, 0.5, 5),
        8: (8 + 0.5 * 9, 0.0, 10),  # terminated after two steps
        9: (9.0, 0.0, 10),
        18: (18 + 0.5 * 19, 0.25, 20),  # the newest row has no successor
        19: (19.0, 0.5, 20),
    }
    for position, (reward, discount, after) in expected.items():
        rows = at == position
        assert rows.any()
        torch.testing.assert_close(got.rewards[rows], torch.full((int(rows.sum()),), float(reward)))
        assert (got.discounts[rows] == discount).all()
        assert (got.next_inputs["observation"][rows][:, 0] == after).all()


def test_the_ring_forgets_the_oldest_and_never_gives_broken_positions():
    buffer = ReplayBuffer(32)  # 16 rows of 2 sub-environments
    buffer.add(fragment(positions=12))
    buffer.add(fragment(positions=12, first=12.0, invalid=[3, 4]))
    assert len(buffer) == 32
    seen = set(buffer.sample(2000, gamma=0.9).rewards.tolist())
    assert seen == set(range(8, 24)) - {15, 16}
    steps = buffer.sample(2000, gamma=1.0, n_step=4)
    at = steps.inputs["observation"][:, 0]
    assert (steps.rewards[at == 13] == 13 + 14).all()


def test_a_buffer_on_disk_gives_the_same(tmp_path):
    here, there = ReplayBuffer(100), ReplayBuffer(100, folder=tmp_path / "replay", memory_bytes=0)
    for buffer in (here, there):
        buffer.add(fragment())
    assert (tmp_path / "replay" / "rewards.bin").exists()
    one, two = (b.sample(50, gamma=0.9, generator=torch.Generator().manual_seed(1)) for b in (here, there))
    assert one.rewards.equal(two.rewards)
    assert one.next_inputs["observation"].equal(two.next_inputs["observation"])


def test_a_chunk_is_one_action_of_all_its_dimensions():
    """With K = 2 actor and critics are those of a space of 2 x 2 numbers; a part left out has no probability."""
    torch.manual_seed(0)
    options = ActorCriticOptions(hidden_sizes=(16,), activation="relu", num_action_chunks=2)
    chunked = SoftActorCritic(STATE, ARM, options)
    torch.manual_seed(0)
    joint = spaces.Box(np.tile(ARM.low, 2), np.tile(ARM.high, 2))
    flat = SoftActorCritic(STATE, joint, dataclasses.replace(options, num_action_chunks=1))
    inputs = {"observation": torch.randn(5, 3)}
    one, two = (decide(policy, inputs, seed=1) for policy in (chunked, flat))
    assert one[0].equal(two[0])
    assert one[1].logprobs.equal(two[1].logprobs)
    given = chunked.env_actions(one[0].numpy())
    assert given.shape == (5, 2, 2)
    np.testing.assert_array_equal(given.reshape(5, 4), flat.env_actions(two[0].numpy()))
    rows = {"observation": inputs["observation"][:, None]}
    mask = torch.ones(5, 1, dtype=torch.bool)
    whole = chunked.evaluate(named_inputs(rows), one[0][:, None], mask)
    torch.testing.assert_close(whole.logprobs, one[1].logprobs)
    executed = torch.tensor([True, False]).expand(5, 1, 2)
    part = chunked.evaluate(named_inputs({**rows, "executed": executed}), one[0][:, None], mask)
    parameters = flat.distribution(inputs)
    torch.testing.assert_close(part.logprobs[:, 0], flat.head.log_prob(parameters, two[0])[:, :2].sum(-1))
    assert chunked.judge(inputs, one[0]).equal(flat.judge(inputs, two[0]))


def test_a_buffer_is_saved_piece_by_piece_and_comes_back(tmp_path, monkeypatch):
    buffer = ReplayBuffer(
        32, folder=tmp_path / "replay", memory_bytes=0
    )  # 16 rows of 2 sub-environments: the ring wraps
    buffer.add(fragment())
    monkeypatch.setattr("rlinf.learners.replay._COPIED_BYTES", 100)
    (tmp_path / "saved").mkdir()
    buffer.save(tmp_path / "saved")
    back = ReplayBuffer(32)
    back.load(tmp_path / "saved")
    buffer.add(fragment(positions=3, first=50.0))
    back.add(fragment(positions=3, first=50.0))
    one, two = (b.sample(200, gamma=0.9, n_step=2, generator=torch.Generator().manual_seed(1)) for b in (buffer, back))
    assert one.rewards.unique().numel() > 10
    for name in ("rewards", "actions", "discounts"):
        assert getattr(one, name).equal(getattr(two, name))
    assert one.inputs["observation"].equal(two.inputs["observation"])
    empty = ReplayBuffer(32)
    empty.save(tmp_path / "saved")
    back.load(tmp_path / "saved")


def literal_logprobs(policy, inputs, noise):
    """Actions before the tanh, and log-probabilities by torch's own transformed distribution."""
    mean, log_std = policy.distribution(inputs).unbind(1)
    unsquashed = mean + log_std.exp() * noise
    normal = torch.distributions.Normal(mean, log_std.exp())
    squashed = torch.distributions.TransformedDistribution(normal, torch.distributions.transforms.TanhTransform())
    return unsquashed, squashed.log_prob(torch.tanh(unsquashed)).sum(-1)


def test_one_update_is_the_published_one_written_out():
    """arXiv:1812.05905, equations 5 to 18, with two critics, two optimisers and nothing shared; one truncated and one
    terminated transition among them."""
    options = AlgorithmConfig(sac_tau=0.1, gamma=0.9, replay_start=0, replay_batch_size=8, replay_ratio=1 / 40)
    optimizer = OptimizerConfig(lr=1e-2, critic_lr=2e-2)
    learner, policy = SacLearner(make_policy(), options, optimizer, seed=3), make_policy()
    before, target = copy.deepcopy(policy), copy.deepcopy(policy)
    batch = fragment(ends=[4], terminates=[9])
    batch = batch.replace(inputs=batch.inputs.map(torch.randn_like), actions=torch.randn(2, 20, 2))
    output = learner.update(batch, step=0)
    assert output["updates"] == 1.0

    generator = torch_generator(3, "sac", 0)
    buffer = ReplayBuffer(1000)
    buffer.add(batch)
    drawn = buffer.sample(8, gamma=0.9, generator=generator)
    noise = torch.randn(1, 2, 8, 2, generator=generator)[0]
    alpha = torch.zeros((), requires_grad=True)
    critics = torch.optim.Adam(policy.parameters_of_critic(), lr=2e-2)
    actor = torch.optim.Adam([*policy.parameters_of_actor(), alpha], lr=1e-2)
    with torch.no_grad():
        actions, logprobs = literal_logprobs(policy, drawn.next_inputs, noise[0])
        soft = torch.minimum(*target.judge(drawn.next_inputs, actions)) - alpha.exp() * logprobs
        goal = drawn.rewards + drawn.discounts * soft
    one, two = policy.judge(drawn.inputs, drawn.actions)
    (0.5 * ((one - goal) ** 2).mean() + 0.5 * ((two - goal) ** 2).mean()).backward()
    critics.step()
    actions, logprobs = literal_logprobs(policy, drawn.inputs, noise[1])
    weight = alpha.detach().exp()
    (weight * logprobs - torch.minimum(*policy.judge(drawn.inputs, actions))).mean().backward()
    alpha.grad = None
    (-alpha.exp() * (logprobs.detach() - 2.0)).mean().backward()  # target entropy: minus the number of actions
    actor.step()

    for name, tensor in learner.policy.state_dict().items():
        torch.testing.assert_close(tensor, policy.state_dict()[name], rtol=1e-4, atol=1e-6)
        assert not tensor.equal(before.state_dict()[name]), name
    torch.testing.assert_close(learner._log_alpha.detach(), alpha.detach())
    for kept, old, new in zip(
        learner._target_weights.parts, target.parameters_of_critic(), policy.parameters_of_critic(), strict=True
    ):
        torch.testing.assert_close(kept, 0.9 * old + 0.1 * new, rtol=1e-4, atol=1e-6)


def test_learning_goes_on_exactly_after_a_restart(tmp_path):
    def learner(seed):
        options = replay(replay_capacity=200)
        return SacLearner(make_policy(seed), options, OPTIMIZER, seed=7)

    straight = learner(0)
    for step in range(3):
        straight.update(fragment(first=float(step)), step=step)
    straight.save(tmp_path / "checkpoint")
    resumed = learner(99)
    resumed.load(tmp_path / "checkpoint")
    for step in range(3, 8):  # past the point where the ring wraps
        batch = fragment(first=float(step))
        assert straight.update(batch, step=step) == resumed.update(batch, step=step)
    one, two = straight.weights(version=1).tensors, resumed.weights(version=1).tensors
    assert all(one[name].equal(two[name]) for name in one)


class Together:
    """Ranks that are threads of this process."""

    def __init__(self, size):
        self.barrier, self.given = threading.Barrier(size, timeout=60), {}

    def sum(self, tensor):
        self.given[threading.get_ident()] = tensor.clone()
        self.barrier.wait()
        total = sum(self.given.values())
        self.barrier.wait()
        return total


@pytest.mark.parametrize("size", [2, 4])
def test_several_ranks_make_the_update_of_one(size, tmp_path):
    options = replay(replay_capacity=400, replay_ratio=0.1)
    together = Together(size)

    def learner(**place):
        return SacLearner(make_policy(), options, OPTIMIZER, seed=7, **place)

    alone = learner()
    gang = [learner(rank=rank, size=size, ranks=together) for rank in range(size)]
    before = alone.weights(version=0).tensors
    with ThreadPoolExecutor(size) as threads:
        for step in range(3):
            batch = fragment(num_envs=4, first=float(step), ends=[3], terminates=[11])
            output = alone.update(batch, step=step)
            for metrics in threads.map(lambda learner, at=step, of=batch: learner.update(of, step=at), gang):
                assert metrics == pytest.approx(output, rel=1e-4)
    after = alone.weights(version=1).tensors
    there = gang[0].weights(version=1).tensors
    assert not any(learner.weights(version=1).tensors for learner in gang[1:])
    for name, tensor in after.items():
        torch.testing.assert_close(there[name], tensor, rtol=1e-4, atol=1e-6)
        assert not tensor.equal(before[name]), name
        assert all(learner.policy.state_dict()[name].equal(there[name]) for learner in gang)
    rows = torch.cat([learner.evaluate(batch)[0] for learner in gang])
    assert sorted(rows.tolist()) == [0, 1, 2, 3]
    for learner in gang:
        learner.save(tmp_path / str(learner.rank))
    assert [path.name for path in tmp_path.iterdir()] == ["0"]


def test_the_critic_learns_the_value_of_a_one_step_task():
    """Episodes of one step whose reward is the first observation: both critics must come to it."""
    policy = make_policy()
    options = AlgorithmConfig(gamma=0.99, replay_start=0, replay_batch_size=64, replay_ratio=0.25)
    learner = SacLearner(policy, options, OptimizerConfig(lr=1e-2), seed=0)
    torch.manual_seed(0)
    for step in range(40):
        batch = fragment(terminates=range(20))
        value = torch.rand(2, 20, 3)
        learner.update(
            batch.replace(
                inputs=named_inputs({"observation": value, "next_observation": value}), rewards=value[..., 0]
            ),
            step=step,
        )
    inputs = {"observation": torch.rand(50, 3)}
    judged = policy.judge(inputs, torch.zeros(50, 2))
    assert (judged - inputs["observation"][:, 0]).abs().mean() < 0.15
