"""Soft actor-critic with memory: actor and critics each read observations through a recurrent cell of their own.

As in Ni et al. (arXiv:2110.05038), the two memories share nothing: the actor's loss does not change the
critics' memory. A row's recurrent state is the actor's, then the critics'. Both advance while the policy
acts, so that the replay buffer can begin a sequence at either state.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from gymnasium import spaces
from torch import Tensor, nn

from rlinf.data.inputs import BatchError, Inputs, ObservationInputs
from rlinf.models.actor_critic.options import ActorCriticOptions
from rlinf.models.memory import Cell, advance, make_cell, state_numbers, unroll
from rlinf.models.off_policy.soft_actor_critic import SoftActorCritic


class RecurrentSoftActorCritic(SoftActorCritic):
    """An `interfaces.ActingPolicy` whose decisions depend on all observations of the episode so far."""

    remembers = True
    positions_independent = False

    def __init__(
        self, observation_space: spaces.Space, action_space: spaces.Space, options: ActorCriticOptions
    ) -> None:
        super().__init__(observation_space, action_space, options)
        assert options.recurrent != "none"
        width = options.embedding_size
        self.actor_cell = make_cell(options.recurrent, self.actor_encoder.out_features, width)
        self.critic_cell = make_cell(options.recurrent, self.critic_encoder.out_features, width)
        self.state_size = state_numbers(self.actor_cell) + state_numbers(self.critic_cell)

    def actor_modules(self) -> list[nn.Module]:
        return [self.actor_encoder, self.actor_cell, self.actor_body, self.head]

    def critic_modules(self) -> list[nn.Module]:
        return [self.critic_encoder, self.critic_cell, self.critic]

    def parameters_at(self, features: Tensor) -> Tensor:
        """Parameters [N, ...] of the head's distribution, from what the actor remembers [N, E]."""
        parameters: Tensor = self.head(self.actor_body(features))
        return parameters

    @torch.no_grad()
    def step(self, observations: Mapping[str, Tensor], state: Tensor, noise: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return actions [N, *action_shape] and the next state [N, S] of both memories; greedy if ``noise`` is None."""
        actor, critic = state.chunk(2, dim=1)
        features, actor = advance(self.actor_cell, self.actor_encoder(observations), actor)
        _, critic = advance(self.critic_cell, self.critic_encoder(observations), critic)
        parameters = self.parameters_at(features)
        actions = self.head.mode(parameters) if noise is None else self.head.sample(parameters, noise)
        return actions, torch.cat([actor, critic], dim=1)

    def parameters_of_rows(self, given: ObservationInputs, shape: torch.Size) -> Tensor:
        state, starts = _memory_of(given)
        leaves = {name: given.observations[name] for name in self.actor_encoder.leaves}
        features, _ = recall(self.actor_encoder, self.actor_cell, leaves, state.chunk(2, dim=1)[0], starts)
        return self.parameters_at(features.flatten(0, 1))

    @torch.no_grad()
    def states(self, inputs: Inputs, shape: torch.Size) -> Tensor:
        """State of both memories after each of the decisions ``shape`` = [B, C], as [B * C, S]."""
        given = ObservationInputs.of(inputs)
        state, starts = _memory_of(given)
        parts = (
            (self.actor_encoder, self.actor_cell, state.chunk(2, dim=1)[0]),
            (self.critic_encoder, self.critic_cell, state.chunk(2, dim=1)[1]),
        )
        leaves = {name: given.observations[name] for name in self.actor_encoder.leaves}
        after = [recall(encoder, cell, leaves, before, starts)[1] for encoder, cell, before in parts]
        return torch.cat(after, dim=2).flatten(0, 1)


def recall(
    encoder: nn.Module, cell: Cell, leaves: Mapping[str, Tensor], state: Tensor, starts: Tensor
) -> tuple[Tensor, Tensor]:
    """Compute a memory's features [B, T, E] for the observations [B, T, ...] of rows, and its states after [B, T,
    S]."""
    flat = {name: leaf.flatten(0, 1) for name, leaf in leaves.items()}
    features: Tensor = encoder(flat)
    return unroll(cell, features.unflatten(0, starts.shape), state, starts)


def _memory_of(given: ObservationInputs) -> tuple[Tensor, Tensor]:
    """Return the initial states of rows, [B, S], and their episodes' starts [B, T]."""
    if given.recurrent_state is None or given.episode_starts is None:
        raise BatchError("a recurrent policy needs the batch's recurrent_state and episode_starts")
    return given.recurrent_state, given.episode_starts
