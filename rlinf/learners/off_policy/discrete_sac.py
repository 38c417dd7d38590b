"""Discrete soft actor-critic (Christodoulou, arXiv:1910.07207): expectations over all actions instead of samples."""

from __future__ import annotations

import math

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
from rlinf.learners.off_policy.temperature import Temperature
from rlinf.models.off_policy.discrete_soft import DiscreteSoftActorCritic
from rlinf.schema import AlgorithmConfig, OptimizerConfig

_SHARE_OF_LARGEST_ENTROPY = 0.98  # as published, where the configuration names no target


class DiscreteSacObjective(OffPolicyObjective[DiscreteSoftActorCritic]):
    """Two Q-networks with targets, a categorical actor, a temperature."""

    temperature: Temperature

    def __init__(
        self,
        policy: DiscreteSoftActorCritic,
        algorithm: AlgorithmConfig,
        optimizer: OptimizerConfig,
        placement: Placement,
    ) -> None:
        super().__init__(policy, algorithm, optimizer, placement)
        self.target = Target([policy.critic_encoder, policy.critic])
        largest = math.log(policy.head.sizes[0])
        self.temperature = Temperature(algorithm, _SHARE_OF_LARGEST_ENTROPY * largest, placement.device)
        self.actor = Trained([*policy.parameters_of_actor(), *self.temperature.parameters], optimizer.lr, placement)
        self.critic = Trained(policy.parameters_of_critic(), self.critic_lr, placement)
        self.trained = {"actor": self.actor, "critic": self.critic}

    def improve(self, sampled: Transitions, noise: Tensor, number: int) -> Improvement:
        alpha = self.temperature.value()
        wanted = self.wanted(sampled, alpha)
        index = sampled.actions[None, :, None].expand(2, -1, 1)
        values = self.policy.judge(sampled.inputs)
        judged = values.gather(2, index)[:, :, 0]
        critic_loss = self.regression(judged, wanted, sampled)
        self.critic.descend(critic_loss)
        metrics = {"critic_loss": critic_loss.detach()}
        if self.acts_now(number):
            with torch.no_grad():
                smaller = self.policy.judge(sampled.inputs).amin(0)
            logs = self.policy.distribution(sampled.inputs).log_softmax(-1)
            loss = (logs.exp() * (alpha * logs - smaller)).sum(-1).mean()
            entropy = -(logs.exp() * logs).sum(-1).mean().detach()
            self.actor.backward(loss)
            self.temperature.add_gradient(entropy, alpha)
            self.actor.step()
            metrics |= {"actor_loss": loss.detach(), "entropy": entropy}
        self.follow([self.critic.flat], number)
        return Improvement({**metrics, "alpha": alpha}, td_errors(judged, wanted))

    @torch.no_grad()
    def wanted(self, sampled: Transitions, alpha: Tensor) -> Tensor:
        """[M]: r + discount sum_a pi(a | s') (min Q'(s', a) - alpha log pi(a | s'))."""
        assert self.target is not None
        encoder, critic = self.target.modules
        logs = self.policy.distribution(sampled.next_inputs).log_softmax(-1)
        following = critic(encoder(sampled.next_inputs)).amin(0)
        return sampled.rewards + sampled.discounts * (logs.exp() * (following - alpha * logs)).sum(-1)
