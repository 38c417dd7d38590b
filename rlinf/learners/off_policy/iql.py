"""Implicit Q-learning (Kostrikov et al., arXiv:2110.06169): no action is judged that the data do not hold."""

from __future__ import annotations

import torch
from torch import Tensor

from rlinf.learners.off_policy.objective import (
    Improvement,
    OffPolicyObjective,
    Placement,
    Target,
    Trained,
    td_errors,
)
from rlinf.learners.off_policy.replay_buffer import Transitions
from rlinf.models.off_policy.implicit_q import ImplicitQ
from rlinf.schema import AlgorithmConfig, OptimizerConfig


class IqlObjective(OffPolicyObjective[ImplicitQ]):
    """The value of states, then the actor by weighted imitation, then the critics, then their targets."""

    def __init__(
        self, policy: ImplicitQ, algorithm: AlgorithmConfig, optimizer: OptimizerConfig, placement: Placement
    ) -> None:
        super().__init__(policy, algorithm, optimizer, placement)
        self.target = Target([policy.critic_encoder, policy.critic])
        self.actor = Trained(policy.parameters_of_actor(), optimizer.lr, placement)
        self.critic = Trained(policy.parameters_of_critic(), self.critic_lr, placement)
        self.value = Trained(policy.parameters_of_value(), self.critic_lr, placement)
        self.trained = {"actor": self.actor, "critic": self.critic, "value": self.value}

    def improve(self, sampled: Transitions, noise: Tensor, number: int) -> Improvement:
        assert self.target is not None
        algorithm, policy = self.algorithm, self.policy
        encoder, critic = self.target.modules
        with torch.no_grad():
            kept = critic(encoder(sampled.inputs), sampled.actions).amin(0)
        value_loss = expectile_loss(kept - policy.state_values(sampled.inputs), algorithm.expectile).mean()
        self.value.descend(value_loss)
        with torch.no_grad():
            advantages = kept - policy.state_values(sampled.inputs)
            goals = sampled.rewards + sampled.discounts * policy.state_values(sampled.next_inputs)
        weights = advantage_weights(advantages, algorithm.awr_beta, algorithm.awr_cap)
        logprobs = policy.head.log_prob(policy.distribution(sampled.inputs), sampled.actions).sum(-1)
        actor_loss = -(weights * logprobs).mean()
        self.actor.descend(actor_loss)
        judged = policy.judge(sampled.inputs, sampled.actions)
        critic_loss = self.regression(judged, goals, sampled)
        self.critic.descend(critic_loss)
        self.follow([self.critic.flat], number)
        metrics = {
            "actor_loss": actor_loss.detach(),
            "critic_loss": critic_loss.detach(),
            "state_value_loss": value_loss.detach(),
            "q": judged.detach().mean(),
            "awr_weight": weights.mean(),
            "awr_capped_fraction": (weights >= algorithm.awr_cap).float().mean(),
        }
        return Improvement(metrics, td_errors(judged, goals))


def expectile_loss(errors: Tensor, expectile: float) -> Tensor:
    """Compute |expectile - 1(u < 0)| u^2 of ``errors`` u = Q - V [M].

    >>> expectile_loss(torch.tensor([2.0, -2.0]), 0.75)
    tensor([3., 1.])
    """
    return torch.where(errors < 0, 1.0 - expectile, expectile) * errors.square()


def advantage_weights(advantages: Tensor, beta: float, cap: float) -> Tensor:
    """Compute min(exp(beta A), cap) of ``advantages`` A [M].

    >>> advantage_weights(torch.tensor([0.0, 5.0]), 3.0, 100.0)
    tensor([  1., 100.])
    """
    return (beta * advantages).exp().clamp(max=cap)
