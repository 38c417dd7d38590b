"""SAC on a flow: the chain by hand, its likelihood, the gradient through its steps, and runs that go on exactly."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from gymnasium import spaces
from simulator_runs import summary
from transitions import ARM, networks, played

from rlinf.learners.off_policy.learner import OffPolicyLearner
from rlinf.models.off_policy.soft_flow import GatedFlowHead
from rlinf.schema import AlgorithmConfig, OptimizerConfig


def head(steps: int = 2) -> GatedFlowHead:
    torch.manual_seed(0)
    return GatedFlowHead(5, spaces.Box(-2.0, 2.0, (1,)), steps)


def constant(part, value: float) -> None:
    torch.nn.init.zeros_(part.weight)
    torch.nn.init.constant_(part.bias, value)


def test_a_chain_by_hand():
    """Gate 1/2, candidate 3, deviation e^-1.5, two steps: x' = x + (3 - x) / 4 + e^-1.5 noise."""
    one = head()
    constant(one.gate[-1], 0.0)
    constant(one.candidate[-1], 3.0)
    constant(one.deviation, 0.0)
    sigma = math.exp(-1.5)
    chain, logprob = one.draw(torch.zeros(1, 5), torch.tensor([[1.0, 0.0, 2.0]]))
    second = 1.0 + 2.0 / 4
    third = second + (3.0 - second) / 4 + 2.0 * sigma
    assert chain[0].tolist() == pytest.approx([1.0, second, third])
    normal = [-0.5 * noise**2 + 1.5 - 0.5 * math.log(2 * math.pi) for noise in (0.0, 2.0)]
    wanted = sum(normal) - math.log(1 - math.tanh(third) ** 2)
    assert logprob.item() == pytest.approx(wanted, rel=1e-5)
    assert one.mode(torch.zeros(1, 5))[0].tolist() == pytest.approx([0.0, 0.75, 0.75 + 2.25 / 4])
    assert one.to_env(chain.detach().numpy()).item() == pytest.approx(2.0 * math.tanh(third), rel=1e-5)


@pytest.mark.parametrize("steps", [1, 4])
def test_the_likelihood_of_a_chain_is_that_of_its_draw(steps: int):
    one = head(steps)
    features, noise = torch.randn(6, 5), torch.randn(6, steps + 1)
    chain, logprob = one.draw(features, noise)
    torch.testing.assert_close(one.log_prob(features, chain), logprob)
    before_tanh = -(logprob + torch.log(1 - torch.tanh(chain[:, -1:]) ** 2))
    exact = steps * (one.spread(features) + 0.5 * math.log(2 * math.pi)) + 0.5 * noise[:, 1:].square().sum(1, True)
    torch.testing.assert_close(before_tanh, exact, rtol=1e-4, atol=1e-4)


def test_a_recorded_action_is_the_end_of_a_chain():
    one = networks("sac_flow").head
    given = np.array([[1.5, 0.25], [-0.5, 0.75]], np.float32)
    chains = one.from_env(given)
    assert chains.shape == (2, 10)
    np.testing.assert_allclose(one.to_env(chains), given, atol=1e-5)
    assert isinstance(ARM, spaces.Box)


def test_one_update_is_that_of_sac_through_all_steps():
    """alpha log p(chain) - min Q(s, tanh(end)), by finite differences of the first layer of the velocity."""
    algorithm = AlgorithmConfig(loss_type="sac_flow", replay_start=0, replay_batch_size=8, sac_alpha=0.2, gamma=0.9)
    learner = OffPolicyLearner(networks("sac_flow"), algorithm, OptimizerConfig(lr=1e-3), seed=3)
    policy, seen = learner.policy, {"observation": torch.randn(8, 3)}
    noise = torch.randn(8, 10)

    def loss() -> torch.Tensor:
        actions, logprobs = policy.draw(seen, noise)
        ends = torch.tanh(actions[:, -2:])
        return (0.2 * logprobs - policy.critic(policy.critic_encoder(seen), ends).amin(0)).mean()

    weight = policy.head.candidate[0].weight
    weight.grad = None
    loss().backward()
    slope = weight.grad[0, 0].item()
    with torch.no_grad():
        values = []
        for change in (1e-2, -1e-2):
            weight[0, 0] += change
            values.append(loss().item())
            weight[0, 0] -= change
    assert slope == pytest.approx((values[0] - values[1]) / 2e-2, rel=2e-2)
    assert abs(slope) > 1e-6


def test_it_learns_which_end_is_better():
    """The reward is the first number of the end: after some updates the greedy action has risen towards it."""
    algorithm = AlgorithmConfig(
        loss_type="sac_flow", replay_start=0, replay_batch_size=32, replay_ratio=2.0, sac_alpha=0.01, gamma=0.5
    )
    learner = OffPolicyLearner(networks("sac_flow"), algorithm, OptimizerConfig(lr=1e-2), seed=3)
    state = {"observation": torch.randn(16, 3)}

    def greedy() -> float:
        return float(torch.tanh(learner.policy.step(state, torch.zeros(16, 0), None)[0][:, -2]).mean())

    before = greedy()
    for step in range(2):
        batch = played("sac_flow", first=float(step))
        batch = batch.replace(rewards=torch.tanh(batch.actions[..., -2]))
        metrics = learner.update(batch, step=step)
    assert metrics["entropy"] != 0
    assert greedy() > before + 0.2


@pytest.mark.slow
def test_a_run_of_two_steps_on_ray_is_that_of_one_process_and_goes_on_exactly(tmp_path, ray_session):
    here = summary(tmp_path / "here", "sac_flow", 4)
    summary(tmp_path / "there", "sac_flow", 2, ["cluster.backend=ray"])
    there = summary(tmp_path / "there", "sac_flow", 4, ["cluster.backend=ray"])
    assert there["params_sha256"] == here["params_sha256"]
