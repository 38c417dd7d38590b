"""CrossQ (Bhatt et al., arXiv:1902.05605): soft actor-critic with batch-normalised critics and without target networks.

Observations and actions of now and of the next step pass through the critics together, so that the statistics of the
normalisation are those of both; the estimates of the next step are taken without gradient.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rlinf.learners.off_policy.replay_buffer import Transitions
from rlinf.learners.off_policy.sac import SacObjective


class CrossQObjective(SacObjective):
    """An actor that moves once in ``policy_delay`` updates, and optimisers with a short memory, as published."""

    has_target = False
    betas = (0.5, 0.999)

    def judged_and_wanted(self, sampled: Transitions, noise: Tensor, alpha: Tensor) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            actions, logprobs = self.policy.draw(sampled.next_inputs, noise)
        inputs = {name: torch.cat([leaf, sampled.next_inputs[name]]) for name, leaf in sampled.inputs.items()}
        self.policy.critic.train()
        judged, following = self.policy.judge(inputs, torch.cat([sampled.actions, actions])).chunk(2, dim=1)
        self.policy.critic.eval()
        return judged, sampled.rewards + sampled.discounts * (following.detach().amin(0) - alpha * logprobs)

    def improve_actor(self, sampled: Transitions, noise: Tensor, alpha: Tensor) -> dict[str, Tensor]:
        self.policy.actor_body.train()
        metrics = super().improve_actor(sampled, noise, alpha)
        self.policy.actor_body.eval()
        return metrics
