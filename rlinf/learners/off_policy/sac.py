"""Soft actor-critic (Haarnoja et al., arXiv:1812.05905): off-policy learning with an entropy bonus."""

from __future__ import annotations

from typing import ClassVar

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
from rlinf.models.off_policy.soft_actor_critic import SoftActorCritic
from rlinf.schema import AlgorithmConfig, OptimizerConfig


class SacObjective(OffPolicyObjective[SoftActorCritic]):
    """Critics with targets, an actor that maximises the smallest one and its entropy, a temperature."""

    noise_draws = 2
    has_target: ClassVar[bool] = True
    betas: ClassVar[tuple[float, float]] = (0.9, 0.999)
    """Of Adam, for both optimisers."""
    temperature: Temperature

    def __init__(
        self, policy: SoftActorCritic, algorithm: AlgorithmConfig, optimizer: OptimizerConfig, placement: Placement
    ) -> None:
        super().__init__(policy, algorithm, optimizer, placement)
        self.target = Target(policy.critic_modules()) if self.has_target else None
        self.temperature = Temperature(algorithm, -float(policy.head.actions), placement.device)
        actor = [*policy.parameters_of_actor(), *self.temperature.parameters]
        self.actor = Trained(actor, optimizer.lr, placement, betas=self.betas)
        self.critic = Trained(policy.parameters_of_critic(), self.critic_lr, placement, betas=self.betas)
        self.trained = {"actor": self.actor, "critic": self.critic}

    def improve(self, sampled: Transitions, noise: Tensor, number: int) -> Improvement:
        """Critics, then actor and temperature, then targets; losses and entropy are of this rank's transitions."""
        alpha = self.temperature.value()
        judged, wanted = self.judged_and_wanted(sampled, noise[0], alpha)
        critic_loss = self.regression(judged, wanted, sampled)
        self.critic.descend(critic_loss)
        metrics = {"critic_loss": critic_loss.detach()}
        if self.acts_now(number):
            metrics |= self.improve_actor(sampled, noise[1], alpha)
        self.follow([self.critic.flat], number)
        return Improvement({**metrics, "alpha": alpha}, self.errors(judged, wanted))

    def judged_and_wanted(self, sampled: Transitions, noise: Tensor, alpha: Tensor) -> tuple[Tensor, Tensor]:
        """Return the critics' estimates [critics, M], and the soft bootstrapped return [M] that they should tell."""
        assert self.target is not None
        with torch.no_grad():
            actions, logprobs = self.policy.draw(sampled.next_inputs, noise)
            encoder, critic = self.target.modules
            following = critic(encoder(sampled.next_inputs), self.policy.squashed(actions)).amin(0) - alpha * logprobs
            wanted = sampled.rewards + sampled.discounts * following
        return self.policy.judge(sampled.inputs, sampled.actions), wanted

    def improve_actor(self, sampled: Transitions, noise: Tensor, alpha: Tensor) -> dict[str, Tensor]:
        """Actor and temperature. The critics are only judges here: their gradients are neither needed nor computed."""
        with self.critic.flat.frozen():
            logprobs, judged = self.acted(sampled, noise)
            loss = self.mean(alpha * logprobs - judged, sampled)
        entropy = -self.mean(logprobs.detach(), sampled)
        self.actor.backward(loss)
        self.temperature.add_gradient(entropy, alpha)
        self.actor.step()
        return {"actor_loss": loss.detach(), "entropy": entropy}

    def acted(self, sampled: Transitions, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Log-probabilities [M] of the actor's actions, and the estimates [M] of them that it maximises."""
        actions, logprobs = self.policy.draw(sampled.inputs, noise)
        return logprobs, self.combined(self.policy.judge(sampled.inputs, actions))

    def combined(self, judged: Tensor) -> Tensor:
        """Return one estimate [M] from those of all critics: the smallest."""
        return judged.amin(0)

    def errors(self, judged: Tensor, wanted: Tensor) -> Tensor:
        """Return the absolute errors [M] by which transitions may be sampled."""
        return td_errors(judged, wanted)

    def mean(self, values: Tensor, sampled: Transitions) -> Tensor:
        """Compute the mean of ``values`` [M] over this rank's transitions."""
        return values.mean()
