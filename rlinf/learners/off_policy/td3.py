"""TD3 (Fujimoto et al., arXiv:1802.09477): a deterministic actor, the smaller of two critics, smoothed targets."""

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
from rlinf.models.off_policy.deterministic import DeterministicActorCritic
from rlinf.schema import AlgorithmConfig, OptimizerConfig


class Td3Objective(OffPolicyObjective[DeterministicActorCritic]):
    """Critics move in every update; actor and targets in one of ``policy_delay``."""

    noise_draws = 1

    def __init__(
        self,
        policy: DeterministicActorCritic,
        algorithm: AlgorithmConfig,
        optimizer: OptimizerConfig,
        placement: Placement,
    ) -> None:
        super().__init__(policy, algorithm, optimizer, placement)
        actor, critic = policy.actor_modules(), policy.critic_modules()
        self.target = Target([*actor, *critic])
        self.actor = Trained([p for module in actor for p in module.parameters()], optimizer.lr, placement)
        self.critic = Trained([p for module in critic for p in module.parameters()], self.critic_lr, placement)
        self.trained = {"actor": self.actor, "critic": self.critic}

    def explore(self, seen: int) -> dict[str, float]:
        """Uniformly random actions until the buffer has ``replay_start`` transitions, then noise around the actor's."""
        self.policy.head.uniform.fill_(seen < self.algorithm.replay_start)
        return {}

    def improve(self, sampled: Transitions, noise: Tensor, number: int) -> Improvement:
        wanted = self.wanted(sampled, noise[0])
        judged = self.policy.judge(sampled.inputs, sampled.actions)
        critic_loss = self.regression(judged, wanted, sampled)
        self.critic.descend(critic_loss)
        metrics = {"critic_loss": critic_loss.detach(), "q": judged.detach().mean()}
        if self.acts_now(number):
            with self.critic.flat.frozen():
                loss = -self.policy.judge_by_first(sampled.inputs, self.policy.distribution(sampled.inputs)).mean()
            self.actor.descend(loss)
            metrics["actor_loss"] = loss.detach()
            assert self.target is not None
            self.target.follow([self.actor.flat, self.critic.flat], self.algorithm.target_tau)
        return Improvement(metrics, td_errors(judged, wanted))

    def smoothing(self, noise: Tensor) -> Tensor:
        """Scale standard normal ``noise`` [M, A] to what is added to the target's actions."""
        limit = self.algorithm.target_noise_clip
        return (self.algorithm.target_noise * noise).clamp(-limit, limit)

    @torch.no_grad()
    def wanted(self, sampled: Transitions, noise: Tensor) -> Tensor:
        """[M]: r + discount min Q'(s', clip(pi'(s') + clip(target_noise eps, -c, c), -1, 1)), c = target_noise_clip."""
        assert self.target is not None
        actor_encoder, body, head, critic_encoder, critic = self.target.modules
        actions = (head(body(actor_encoder(sampled.next_inputs))) + self.smoothing(noise)).clamp(-1.0, 1.0)
        following = critic(critic_encoder(sampled.next_inputs), actions).amin(0)
        return sampled.rewards + sampled.discounts * following
