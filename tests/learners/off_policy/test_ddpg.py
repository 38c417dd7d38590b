"""DDPG's update, against the published one written out."""

from __future__ import annotations

import copy

import torch
from transitions import networks, played

from rlinf.base.random_streams import torch_generator
from rlinf.learners.off_policy.learner import OffPolicyLearner
from rlinf.learners.off_policy.replay_buffer import ReplayBuffer
from rlinf.schema import AlgorithmConfig, OptimizerConfig


def test_one_update_is_the_published_one_written_out():
    """arXiv:1509.02971, algorithm 1: critic, actor and both targets, with y = r + gamma Q'(s', mu'(s'))."""
    shape = {"replay_start": 0, "replay_batch_size": 8, "replay_ratio": 1 / 40}
    options = AlgorithmConfig(loss_type="ddpg", target_tau=0.1, gamma=0.9, **shape)
    learner, policy = OffPolicyLearner(networks("ddpg"), options, OptimizerConfig(lr=1e-2), seed=3), networks("ddpg")
    target = copy.deepcopy(policy)
    batch = played("ddpg", ends=[4], terminates=[9])
    metrics = learner.update(batch, step=0)
    assert len(policy.critic.critics) == 1

    buffer = ReplayBuffer(1000)
    buffer.add(batch)
    drawn = buffer.sample(8, gamma=0.9, generator=torch_generator(3, "ddpg", 0))
    parts = [
        [p for m in modules() for p in m.parameters()] for modules in (policy.actor_modules, policy.critic_modules)
    ]
    actor, critic = (torch.optim.Adam(part, lr=1e-2) for part in parts)
    with torch.no_grad():
        (following,) = target.judge(drawn.next_inputs, target.distribution(drawn.next_inputs))
        goal = drawn.rewards + drawn.discounts * following
    (judged,) = policy.judge(drawn.inputs, drawn.actions)
    loss = 0.5 * ((judged - goal) ** 2).mean()
    loss.backward()
    critic.step()
    assert metrics["critic_loss"] == loss.item() or abs(metrics["critic_loss"] - loss.item()) < 1e-5
    actor.zero_grad()
    (-policy.judge(drawn.inputs, policy.distribution(drawn.inputs))[0].mean()).backward()
    actor.step()
    for name, tensor in learner.policy.named_parameters():
        torch.testing.assert_close(tensor, policy.get_parameter(name), rtol=1e-4, atol=1e-6)
    old = [p for modules in (target.actor_modules(), target.critic_modules()) for m in modules for p in m.parameters()]
    for part, before, new in zip(learner.objective.target.weights.parts, old, [*parts[0], *parts[1]], strict=True):
        torch.testing.assert_close(part, 0.9 * before + 0.1 * new, rtol=1e-4, atol=1e-6)
