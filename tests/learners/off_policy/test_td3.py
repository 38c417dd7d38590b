"""TD3's update, against the published one; its targets by hand."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from transitions import fragment, networks, played

from rlinf.base.random_streams import torch_generator
from rlinf.learners.off_policy.learner import OffPolicyLearner
from rlinf.learners.off_policy.replay_buffer import ReplayBuffer, Transitions
from rlinf.schema import AlgorithmConfig, OptimizerConfig


def test_one_update_is_the_published_one_written_out():
    """arXiv:1802.09477, algorithm 1, the update of every second step: critics, then actor and all targets."""
    shape = {"replay_start": 0, "replay_batch_size": 8, "replay_ratio": 2 / 40, "policy_delay": 2}
    options = AlgorithmConfig(loss_type="td3", target_tau=0.1, gamma=0.9, **shape)
    learner, policy = OffPolicyLearner(networks("td3"), options, OptimizerConfig(lr=1e-2), seed=3), networks("td3")
    target = copy.deepcopy(policy)
    batch = played("td3", ends=[4], terminates=[9])
    learner.update(batch, step=0)

    generator = torch_generator(3, "td3", 0)
    buffer = ReplayBuffer(1000)
    buffer.add(batch)
    both = buffer.sample(16, gamma=0.9, generator=generator).split(8)
    noise = torch.randn(2, 1, 8, 2, generator=generator)[:, 0]
    critic_parameters = [p for module in policy.critic_modules() for p in module.parameters()]
    actor_parameters = [p for module in policy.actor_modules() for p in module.parameters()]
    critics, actor = (torch.optim.Adam(parts, lr=1e-2) for parts in (critic_parameters, actor_parameters))
    for drawn, eps in zip(both, noise, strict=True):
        with torch.no_grad():
            smoothing = (0.2 * eps).clamp(-0.5, 0.5)
            actions = (target.distribution(drawn.next_inputs) + smoothing).clamp(-1, 1)
            goal = drawn.rewards + drawn.discounts * torch.minimum(*target.judge(drawn.next_inputs, actions))
        critics.zero_grad()
        one, two = policy.judge(drawn.inputs, drawn.actions)
        (0.5 * ((one - goal) ** 2).mean() + 0.5 * ((two - goal) ** 2).mean()).backward()
        critics.step()
    actor.zero_grad()
    (-policy.judge(drawn.inputs, policy.distribution(drawn.inputs))[0].mean()).backward()
    actor.step()
    for name, tensor in learner.policy.named_parameters():
        torch.testing.assert_close(tensor, policy.get_parameter(name), rtol=1e-4, atol=1e-6)
    kept = learner.objective.target.weights.parts
    before = [
        p for modules in (target.actor_modules(), target.critic_modules()) for m in modules for p in m.parameters()
    ]
    for part, old, new in zip(kept, before, [*actor_parameters, *critic_parameters], strict=True):
        torch.testing.assert_close(part, 0.9 * old + 0.1 * new, rtol=1e-4, atol=1e-6)


def test_the_target_by_hand():
    """pi' = tanh(0.5) = 0.46212; the noise 10 is cut to 0.5, the action to 0.96212; Q1 = 3 a, Q2 = 2 a + 1.

    min Q = min(2.88635, 2.92423) = 2.88635; y = 1 + 0.9 x 2.88635 = 3.59772, and 1 where the episode terminated."""
    learner = OffPolicyLearner(
        networks("td3", hidden=(1,)), AlgorithmConfig(loss_type="td3"), OptimizerConfig(lr=1e-3), seed=0
    )
    _, _, head, _, critic = learner.objective.target.modules
    with torch.no_grad():
        for parameter in learner.objective.target.modules.parameters():
            parameter.zero_()
        head.mean.bias[0] = 0.5
        for one, (slope, height) in zip(critic.critics, ((3.0, 0.0), (2.0, 1.0)), strict=True):
            one[0].weight[3, 0] = 1.0  # the first number of the action, behind three of the observation
            one[2].weight[0, 0], one[2].bias[0] = slope, height
    state = {"observation": torch.zeros(2, 3)}
    drawn = Transitions(state, torch.zeros(2, 2), torch.ones(2), state, torch.tensor([0.9, 0.0]))
    wanted = learner.objective.wanted(drawn, torch.tensor([[10.0, 0.0], [10.0, 0.0]]))
    assert wanted.tolist() == pytest.approx([1 + 0.9 * 3 * (math.tanh(0.5) + 0.5), 1.0], rel=1e-6)


def test_actions_are_uniform_until_there_are_enough_and_noisy_afterwards():
    options = AlgorithmConfig(loss_type="td3", replay_start=40, replay_batch_size=8, replay_ratio=0.01)
    learner = OffPolicyLearner(networks("td3"), options, OptimizerConfig(lr=1e-3), seed=0)
    state, noise = {"observation": torch.randn(4000, 3)}, torch.randn(4000, 2)
    empty = torch.zeros(4000, 0)
    early, _ = learner.policy.step(state, empty, noise)
    assert early.abs().max() <= 1
    assert early.mean().abs() < 0.05
    assert float(early.std()) == pytest.approx(1 / math.sqrt(3), rel=0.05)
    learner.update(fragment(), step=0)
    late, _ = learner.policy.step(state, empty, noise)
    mean, _ = learner.policy.step(state, empty, None)
    torch.testing.assert_close(late, (mean + 0.1 * noise).clamp(-1, 1))
    assert "head.uniform" in learner.weights(version=1).tensors
