"""Discrete SAC's target, actor and temperature by hand."""

from __future__ import annotations

import math

import pytest
import torch
from transitions import networks

from rlinf.learners.off_policy.learner import OffPolicyLearner
from rlinf.learners.off_policy.replay_buffer import Transitions
from rlinf.schema import AlgorithmConfig, OptimizerConfig

STATE = {"observation": torch.zeros(1, 3)}


def objective(**options):
    algorithm = AlgorithmConfig(loss_type="discrete_sac", **options)
    return OffPolicyLearner(networks("discrete_sac"), algorithm, OptimizerConfig(lr=1e-2), seed=0).objective


def set_outputs(layer, values):
    """Make a last layer return these values for every input."""
    with torch.no_grad():
        layer.weight.zero_()
        layer.bias.copy_(torch.tensor(values))


def test_target_and_actor_by_hand():
    """pi = (1/2, 1/4, 1/8, 1/8), alpha = 0.1, min Q' = (1, 2, 0, 4).

    E min Q' = 0.5 + 0.5 + 0.5 = 1.5, the entropy 1.75 ln 2: y = 1 + 0.9 (1.5 + 0.1 x 1.21301) = 2.45917.
    The actor's loss with the same values is -(1.5 + 0.121301).
    """
    made = objective(sac_alpha=0.1, replay_batch_size=1)
    set_outputs(made.policy.head.logits, [math.log(p) for p in (0.5, 0.25, 0.125, 0.125)])
    for critics in (made.target.modules[1].critics, made.policy.critic.critics):
        set_outputs(critics[0][-1], [1.0, 3.0, 0.0, 4.0])
        set_outputs(critics[1][-1], [5.0, 2.0, 7.0, 4.0])
    entropy = 1.75 * math.log(2)
    drawn = Transitions(STATE, torch.tensor([1]), torch.ones(1), STATE, torch.tensor([0.9]))
    wanted = made.wanted(drawn, torch.tensor(0.1))
    assert wanted.tolist() == pytest.approx([1 + 0.9 * (1.5 + 0.1 * entropy)])
    goal = float(wanted)
    made.critic.optimizer.param_groups[0]["lr"] = 0.0  # the actor is judged by the same critics
    metrics = made.improve(drawn, torch.zeros(0), 0).metrics
    assert float(metrics["critic_loss"]) == pytest.approx(0.5 * (3 - goal) ** 2 + 0.5 * (2 - goal) ** 2)
    assert float(metrics["actor_loss"]) == pytest.approx(-(1.5 + 0.1 * entropy))
    assert float(metrics["entropy"]) == pytest.approx(entropy)


@pytest.mark.parametrize(("probabilities", "step"), [((0.97, 0.01, 0.01, 0.01), 0.01), ((0.25,) * 4, -0.01)])
def test_the_temperature_steers_the_entropy_to_98_percent_of_the_largest(probabilities, step):
    made = objective(replay_batch_size=1)
    set_outputs(made.policy.head.logits, [math.log(p) for p in probabilities])
    drawn = Transitions(STATE, torch.tensor([1]), torch.ones(1), STATE, torch.tensor([0.9]))
    made.improve(drawn, torch.zeros(0), 0)
    assert float(made.temperature.log.detach()) == pytest.approx(step, rel=1e-3)  # Adam's first step is the rate
