"""DQN (Mnih et al., doi:10.1038/nature14236), with double Q-learning (van Hasselt et al., arXiv:1509.06461).

Dueling networks are `policy.dueling`, n-step returns `algorithm.n_step`, prioritised replay
`algorithm.priority_exponent`.
"""

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
from rlinf.models.off_policy.q_network import QNetwork
from rlinf.schema import AlgorithmConfig, OptimizerConfig


class DqnObjective(OffPolicyObjective[QNetwork]):
    """One Q-network, and a target that is renewed every ``target_update_every`` updates."""

    def __init__(
        self, policy: QNetwork, algorithm: AlgorithmConfig, optimizer: OptimizerConfig, placement: Placement
    ) -> None:
        super().__init__(policy, algorithm, optimizer, placement)
        self.target = Target([policy.encoder, policy.body, policy.head])
        self.values = Trained(policy.parameters(), optimizer.lr, placement, grad_clip=optimizer.grad_clip)
        self.trained = {"critic": self.values}

    def explore(self, seen: int) -> dict[str, float]:
        """Epsilon falls linearly from ``epsilon_start`` to ``epsilon_end`` over ``epsilon_steps`` transitions."""
        algorithm = self.algorithm
        share = min(1.0, seen / algorithm.epsilon_steps)
        epsilon = algorithm.epsilon_start + share * (algorithm.epsilon_end - algorithm.epsilon_start)
        self.policy.head.epsilon.fill_(epsilon)
        return {"epsilon": epsilon}

    def improve(self, sampled: Transitions, noise: Tensor, number: int) -> Improvement:
        wanted = self.wanted(sampled)
        values = self.policy.distribution(sampled.inputs)
        judged = values.gather(1, sampled.actions[:, None]).T
        loss = self.regression(judged, wanted, sampled)
        self.values.descend(loss)
        self.follow([self.values.flat], number)
        return Improvement({"critic_loss": loss.detach(), "q": judged.detach().mean()}, td_errors(judged, wanted))

    @torch.no_grad()
    def wanted(self, sampled: Transitions) -> Tensor:
        """[M]: r + discount Q'(s', a'), a' the best action by the target, or by the network itself (double)."""
        assert self.target is not None
        encoder, body, head = self.target.modules
        following = self.policy.legal(head(body(encoder(sampled.next_inputs))), sampled.next_inputs)
        chooser = self.policy.distribution(sampled.next_inputs) if self.algorithm.double_q else following
        best = following.gather(1, chooser.argmax(1, keepdim=True))[:, 0]
        return sampled.rewards + sampled.discounts * best
