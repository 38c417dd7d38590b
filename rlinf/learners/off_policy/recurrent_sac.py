"""Soft actor-critic on sequences: actor, critics and targets recall each of them from its stored state."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from rlinf.learners.off_policy.replay_buffer import Transitions
from rlinf.learners.off_policy.sac import SacObjective
from rlinf.learners.off_policy.sequences import Sequences
from rlinf.models.memory import Cell, advance
from rlinf.models.off_policy.recurrent_soft import RecurrentSoftActorCritic, recall


class RecurrentSacObjective(SacObjective):
    """The losses of `SacObjective`, of positions instead of single transitions."""

    policy: RecurrentSoftActorCritic

    def judged_and_wanted(self, sampled: Transitions, noise: Tensor, alpha: Tensor) -> tuple[Tensor, Tensor]:
        """Both critics' estimates [2, M L], and the soft bootstrapped return [M L] that they should tell."""
        assert isinstance(sampled, Sequences)
        assert self.target is not None
        policy = self.policy
        actor, critics = sampled.state.chunk(2, dim=1)
        with torch.no_grad():
            following = _after(policy.actor_encoder, policy.actor_cell, sampled, actor)
            actions, logprobs = policy.drawn(policy.parameters_at(following), noise)
            encoder, cell, critic = self.target.modules
            assert isinstance(cell, Cell)
            judged = critic(_after(encoder, cell, sampled, critics), torch.tanh(actions)).amin(0)
            wanted = sampled.rewards + sampled.discounts * (judged - alpha * logprobs)
        features, _ = _now(policy.critic_encoder, policy.critic_cell, sampled, critics)
        return policy.critic(features, torch.tanh(sampled.actions)), wanted

    def acted(self, sampled: Transitions, noise: Tensor) -> tuple[Tensor, Tensor]:
        assert isinstance(sampled, Sequences)
        policy = self.policy
        actor, critics = sampled.state.chunk(2, dim=1)
        features, _ = _now(policy.actor_encoder, policy.actor_cell, sampled, actor)
        actions, logprobs = policy.drawn(policy.parameters_at(features), noise)
        with torch.no_grad():
            remembered, _ = _now(policy.critic_encoder, policy.critic_cell, sampled, critics)
        return logprobs, self.combined(policy.critic(remembered, torch.tanh(actions)))

    def mean(self, values: Tensor, sampled: Transitions) -> Tensor:
        assert sampled.weights is not None
        return (values * sampled.weights).mean()


def _now(encoder: nn.Module, cell: Cell, sampled: Sequences, state: Tensor) -> tuple[Tensor, Tensor]:
    """Compute a memory's features at the trained positions [M L, E], and its states afterwards [M L, S]."""
    if sampled.before_starts.shape[1]:
        with torch.no_grad():
            state = recall(encoder, cell, sampled.before, state, sampled.before_starts)[1][:, -1]
    features, states = recall(encoder, cell, sampled.rows(), state, sampled.starts)
    return features.flatten(0, 1), states.flatten(0, 1)


def _after(encoder: nn.Module, cell: Cell, sampled: Sequences, state: Tensor) -> Tensor:
    """Compute a memory's features [M L, E] for the observations after the trained positions: one step from each."""
    _, states = _now(encoder, cell, sampled, state)
    return advance(cell, encoder(sampled.next_inputs), states)[0]
