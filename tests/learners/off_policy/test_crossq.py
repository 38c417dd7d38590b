"""CrossQ: one pass for now and next, batch statistics, no target; against the formulas written out."""

from __future__ import annotations

import pytest
import torch
from transitions import networks, played

from rlinf.base.random_streams import torch_generator
from rlinf.learners.off_policy.learner import OffPolicyLearner
from rlinf.learners.off_policy.replay_buffer import ReplayBuffer
from rlinf.models.off_policy.crossq import BatchRenorm
from rlinf.schema import AlgorithmConfig, OptimizerConfig


def test_the_critics_see_both_halves_together_and_next_values_have_no_gradient():
    """arXiv:1902.05605, section 4: Q of [(s, a); (s', a')] in one pass, its batch statistics of both halves."""
    shape = {"replay_start": 0, "replay_batch_size": 8, "replay_ratio": 1 / 40, "sac_alpha": 0.2}
    options = AlgorithmConfig(loss_type="crossq", gamma=0.9, policy_delay=3, **shape)
    learner = OffPolicyLearner(networks("crossq"), options, OptimizerConfig(lr=1e-2), seed=3)
    policy = networks("crossq").eval()
    batch = played("crossq", ends=[4], terminates=[9])
    metrics = learner.update(batch, step=0)
    assert "actor_loss" not in metrics  # the actor moves in the third update first

    generator = torch_generator(3, "crossq", 0)
    buffer = ReplayBuffer(1000)
    buffer.add(batch)
    drawn = buffer.sample(8, gamma=0.9, generator=generator)
    noise = torch.randn(1, 2, 8, 2, generator=generator)[0, 0]
    with torch.no_grad():
        following, logprobs = policy.draw(drawn.next_inputs, noise)
    now = torch.cat([drawn.inputs["observation"], torch.tanh(drawn.actions)], dim=1)
    then = torch.cat([drawn.next_inputs["observation"], torch.tanh(following)], dim=1)
    critics = torch.optim.Adam(policy.parameters_of_critic(), lr=1e-2, betas=(0.5, 0.999))
    predicted = []
    for critic in policy.critic.critics:
        values = torch.cat([now, then])
        for layer in critic:
            if isinstance(layer, BatchRenorm):
                spread = (values.var(0, unbiased=False) + 1e-3).sqrt()
                values = (values - values.mean(0)) / spread * layer.scale + layer.shift
            else:
                values = layer(values)
        predicted.append(values[:, 0].split(8))
    soft = torch.minimum(predicted[0][1], predicted[1][1]).detach() - 0.2 * logprobs
    goal = drawn.rewards + drawn.discounts * soft
    loss = sum(0.5 * ((one - goal) ** 2).mean() for one, _ in predicted)
    loss.backward()
    critics.step()
    assert metrics["critic_loss"] == pytest.approx(loss.item(), rel=1e-4)
    for name, tensor in learner.policy.named_parameters():
        torch.testing.assert_close(tensor, policy.get_parameter(name), rtol=1e-3, atol=1e-5)


def test_batch_renormalisation_by_hand():
    """Rows 0 and 2: mean 1, variance 1. While training +-1; the running mean moves a hundredth of the way to 1."""
    layer = BatchRenorm(1)
    values = torch.tensor([[0.0], [2.0]])
    assert layer(values).flatten().tolist() == pytest.approx([-1.0, 1.0], abs=1e-3)
    assert float(layer.mean) == pytest.approx(0.01)
    assert float(layer.variance) == pytest.approx(1.0)
    output = layer.eval()(values).flatten().tolist()
    assert output == pytest.approx([-0.01, 1.99], abs=1e-3)
    layer.updates.fill_(100_000)
    # after the warm-up: r = 1, d = (1 - 0.01) / 1, so that the running statistics are what it is normalised by
    assert layer.train()(values).flatten().tolist() == pytest.approx([-0.01, 1.99], abs=1e-3)


def test_acting_and_evaluating_leave_the_statistics_alone():
    learner = OffPolicyLearner(
        networks("crossq"), AlgorithmConfig(loss_type="crossq"), OptimizerConfig(lr=1e-3), seed=0
    )
    before = {name: tensor.clone() for name, tensor in learner.policy.state_dict().items()}
    learner.policy.step({"observation": torch.randn(5, 3)}, torch.zeros(5, 0), torch.randn(5, 2))
    learner.evaluate(played("crossq"))
    assert all(tensor.equal(before[name]) for name, tensor in learner.policy.state_dict().items())
