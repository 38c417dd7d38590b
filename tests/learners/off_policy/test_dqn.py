"""DQN's targets by hand, double and plain, and what epsilon does."""

from __future__ import annotations

import math

import pytest
import torch
from transitions import networks, played

from rlinf.learners.off_policy.learner import OffPolicyLearner
from rlinf.learners.off_policy.replay_buffer import Transitions
from rlinf.schema import AlgorithmConfig, OptimizerConfig

STATE = {"observation": torch.zeros(2, 3)}


def learner(dueling=False, **options):
    algorithm = AlgorithmConfig(loss_type="dqn", target_tau=1.0, replay_batch_size=8, **options)
    return OffPolicyLearner(networks("dqn", dueling=dueling), algorithm, OptimizerConfig(lr=1e-2), seed=0)


def values_of(head, values):
    """Make a head return these values for every input."""
    with torch.no_grad():
        head.advantages.weight.zero_()
        head.advantages.bias.copy_(torch.tensor(values))


@pytest.mark.parametrize(("double", "best"), [(True, 0.5), (False, 3.0)])
def test_the_target_by_hand(double, best):
    """The network prefers action 2, the target action 1: y = 1 + 0.9 Q'(2) = 1.45, without double 1 + 0.9 x 3 = 3.7."""
    objective = learner(double_q=double).objective
    values_of(objective.policy.head, [0.0, 1.0, 2.0, -1.0])
    values_of(objective.target.modules[2], [0.0, 3.0, 0.5, -1.0])
    drawn = Transitions(STATE, torch.zeros(2).long(), torch.ones(2), STATE, torch.tensor([0.9, 0.0]))
    assert objective.wanted(drawn).tolist() == pytest.approx([1 + 0.9 * best, 1.0])


@pytest.mark.parametrize(("delta", "loss"), [(None, 0.5 * 1.45**2), (1.0, 1.45 - 0.5)])
def test_the_loss_by_hand(delta, loss):
    """Q(s, 0) = 0 against y = 1.45 in both transitions: half the square, or |e| - 1/2 beyond delta = 1."""
    objective = learner(huber_delta=delta).objective
    values_of(objective.policy.head, [0.0, 1.0, 2.0, -1.0])
    values_of(objective.target.modules[2], [0.0, 3.0, 0.5, -1.0])
    drawn = Transitions(STATE, torch.zeros(2).long(), torch.ones(2), STATE, torch.full((2,), 0.9))
    improvement = objective.improve(drawn, torch.zeros(0), 0)
    assert float(improvement.metrics["critic_loss"]) == pytest.approx(loss)
    assert improvement.errors.tolist() == pytest.approx([1.45, 1.45])


def test_a_dueling_network_is_value_plus_centred_advantage():
    head = learner(dueling=True).policy.head
    values_of(head, [1.0, 2.0, 3.0, 6.0])
    with torch.no_grad():
        head.value.weight.zero_()
        head.value.bias.fill_(10.0)
    assert head(torch.randn(1, 16)).tolist() == [[8.0, 9.0, 10.0, 13.0]]


def test_epsilon_falls_with_the_transitions_and_is_the_probability_of_a_random_action():
    made = learner(epsilon_steps=80, replay_start=1000)
    policy, count = made.policy, 20_000
    assert float(policy.head.epsilon) == 1.0
    assert made.update(played("dqn"), step=0)["epsilon"] == pytest.approx(1 - 0.5 * 0.95)
    values_of(policy.head, [0.0, 5.0, 1.0, 2.0])
    state, noise = {"observation": torch.zeros(count, 3)}, torch.rand(count, 2)
    actions, _ = policy.step(state, torch.zeros(count, 0), noise)
    shares = actions.bincount(minlength=4) / count
    epsilon = float(policy.head.epsilon)
    assert shares.tolist() == pytest.approx([epsilon / 4 + (1 - epsilon) * (a == 1) for a in range(4)], abs=0.02)
    rows = played("dqn").inputs
    output = policy.evaluate(rows, torch.ones(2, 20).long(), torch.ones(2, 20).bool())
    assert output.logprobs.exp().unique().tolist() == pytest.approx([epsilon / 4 + 1 - epsilon])
    assert all(math.isfinite(value) for value in output.entropy.flatten().tolist())
    assert made.update(played("dqn"), step=1)["epsilon"] == pytest.approx(0.05)


def test_the_target_is_renewed_every_so_many_updates():
    made = learner(replay_start=0, replay_ratio=3 / 40, target_update_every=4)
    first = made.objective.target.weights.whole.clone()
    made.update(played("dqn"), step=0)
    assert made.objective.target.weights.whole.equal(first)
    made.update(played("dqn"), step=1)  # updates 3 to 5: the fourth renews it
    assert not made.objective.target.weights.whole.equal(first)
    assert not made.objective.target.weights.whole.equal(made.objective.values.flat.whole)
