"""TQC: the truncated mixture by hand, the update written out, and the loss against quantiles that are known."""

from __future__ import annotations

import copy

import pytest
import torch
from transitions import networks, played

from rlinf.base.random_streams import torch_generator
from rlinf.learners.off_policy.learner import OffPolicyLearner
from rlinf.learners.off_policy.replay_buffer import ReplayBuffer, Transitions
from rlinf.learners.off_policy.tqc import quantile_huber_loss
from rlinf.models.off_policy.layers import quantile_fractions
from rlinf.schema import AlgorithmConfig, OptimizerConfig


def make(hidden=(16, 16), **options):
    shape = {"replay_start": 0, "replay_batch_size": 8, "replay_ratio": 1 / 40, "sac_alpha": 0.2}
    algorithm = AlgorithmConfig(loss_type="tqc", target_tau=0.1, gamma=0.9, **{**shape, **options})
    return OffPolicyLearner(
        networks("tqc", hidden=hidden, num_quantiles=5, num_critics=3), algorithm, OptimizerConfig(lr=1e-2), seed=3
    )


def test_the_truncated_mixture_by_hand():
    """Three critics with the quantiles 0..4, 10..14 and 20..24; two dropped for each leave 0..4 and 10..13.

    With entropy weight 0: y = 1 + 0.9 z, and 1 where the episode terminated.
    """
    learner = make(hidden=(1,), dropped_quantiles=2)
    _, critic = learner.objective.target.modules
    with torch.no_grad():
        for number, one in enumerate(critic.critics):
            one[2].weight.zero_()
            one[2].bias.copy_(10.0 * number + torch.tensor([4.0, 2.0, 0.0, 1.0, 3.0]))
    state = {"observation": torch.zeros(2, 3)}
    drawn = Transitions(state, torch.zeros(2, 2), torch.ones(2), state, torch.tensor([0.9, 0.0]))
    judged, wanted = learner.objective.judged_and_wanted(drawn, torch.zeros(2, 2), torch.tensor(0.0))
    assert judged.shape == (3, 2, 5)
    kept = [0, 1, 2, 3, 4, 10, 11, 12, 13]
    assert wanted[0].tolist() == pytest.approx([1 + 0.9 * z for z in kept])
    assert wanted[1].tolist() == [1.0] * 9


def test_one_update_is_the_published_one_written_out():
    """arXiv:2005.04269, algorithm 1: critics on the kept quantiles, then the actor by the mean of all quantiles."""
    learner = make(dropped_quantiles=1)
    policy = networks("tqc", num_quantiles=5, num_critics=3)
    target = copy.deepcopy(policy)
    batch = played("tqc", ends=[4], terminates=[9])
    metrics = learner.update(batch, step=0)

    generator = torch_generator(3, "tqc", 0)
    buffer = ReplayBuffer(1000)
    buffer.add(batch)
    drawn = buffer.sample(8, gamma=0.9, generator=generator)
    noise = torch.randn(1, 2, 8, 2, generator=generator)[0]
    critics = torch.optim.Adam(policy.parameters_of_critic(), lr=1e-2)
    actor = torch.optim.Adam(policy.parameters_of_actor(), lr=1e-2)
    with torch.no_grad():
        actions, logprobs = policy.draw(drawn.next_inputs, noise[0])
        pooled = torch.cat(list(target.judge(drawn.next_inputs, actions)), dim=1).sort(dim=1).values[:, :12]
        goal = drawn.rewards[:, None] + drawn.discounts[:, None] * (pooled - 0.2 * logprobs[:, None])
    total = torch.zeros(())
    for quantiles in policy.judge(drawn.inputs, drawn.actions):
        for index, tau in enumerate(((torch.arange(5) + 0.5) / 5).tolist()):
            error = goal - quantiles[:, index : index + 1]
            huber = torch.where(error.abs() <= 1, 0.5 * error**2, error.abs() - 0.5)
            total = total + (torch.where(error < 0, 1 - tau, tau) * huber).mean() / 5
    total.backward()
    critics.step()
    assert metrics["critic_loss"] == pytest.approx(total.item(), rel=1e-4)
    actor.zero_grad()
    actions, logprobs = policy.draw(drawn.inputs, noise[1])
    (0.2 * logprobs - policy.judge(drawn.inputs, actions).mean(dim=(0, 2))).mean().backward()
    actor.step()
    for name, tensor in learner.policy.named_parameters():
        torch.testing.assert_close(tensor, policy.get_parameter(name), rtol=1e-3, atol=1e-5)


@pytest.mark.slow
def test_the_loss_is_least_at_the_quantiles_of_the_samples():
    """Of samples far from each other, Huber's bound aside, the minimiser is the quantile of the fraction."""
    samples = 100.0 * torch.arange(1, 11)
    quantiles = torch.full((5,), 500.0, requires_grad=True)
    optimizer = torch.optim.Adam([quantiles], lr=5.0)
    for _ in range(2000):
        optimizer.zero_grad()
        quantile_huber_loss(quantiles, samples).backward()
        optimizer.step()
    assert quantile_fractions(5).tolist() == pytest.approx([0.1, 0.3, 0.5, 0.7, 0.9])
    for found, tau in zip(quantiles.tolist(), quantile_fractions(5).tolist(), strict=True):
        assert 1000 * tau - 10 <= found <= 1000 * tau + 110, "between both neighbours of the fraction"


def test_fewer_quantiles_left_give_lower_targets():
    state = {"observation": torch.randn(4, 3)}
    drawn = Transitions(state, torch.zeros(4, 2), torch.ones(4), state, torch.full((4,), 0.9))
    means = []
    for dropped in (0, 2, 4):
        _, wanted = make(dropped_quantiles=dropped).objective.judged_and_wanted(
            drawn, torch.zeros(4, 2), torch.tensor(0.2)
        )
        means.append(float(wanted.mean()))
    assert means[0] > means[1] > means[2]


def test_prioritised_errors_are_distances_of_means():
    objective = make().objective
    judged = torch.tensor([[[0.0, 2.0]], [[4.0, 4.0]]])
    assert objective.errors(judged, torch.tensor([[1.0, 3.0]])).tolist() == [1.5]
