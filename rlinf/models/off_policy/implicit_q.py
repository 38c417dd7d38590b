"""Implicit Q-learning's networks (Kostrikov et al., arXiv:2110.06169): actor, critics of actions, critic of states."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from rlinf.data.granularity import Granularity
from rlinf.data.spaces import share_of_bounds
from rlinf.models.actor_critic.distributions import GaussianHead
from rlinf.models.actor_critic.encoders import ObservationEncoder
from rlinf.models.actor_critic.options import ActorCriticOptions
from rlinf.models.off_policy.actor_and_critics import ActorAndCritics
from rlinf.models.off_policy.layers import CriticEnsemble, body

_LOG_STD_RANGE = (-5.0, 2.0)


class BoundedGaussianHead(GaussianHead):
    """A normal around a mean within the bounds, with a deviation that does not depend on the state. Actions: [-1, 1].

    Recorded actions at the bounds have a finite log-probability, which a squashed normal does not give them.
    """

    def __init__(self, features: int, space: spaces.Box, init_log_std: float) -> None:
        super().__init__(features, space, init_log_std)
        self.require_finite_bounds("loss_type: iql needs", "bound them by a wrapper")

    def forward(self, features: Tensor) -> Tensor:
        mean = torch.tanh(self.mean(features))
        return torch.stack([mean, self.log_std.clamp(*_LOG_STD_RANGE).expand_as(mean)], dim=1)

    def to_env(self, actions: np.ndarray) -> np.ndarray:
        return self._from_unit(0.5 * (np.clip(actions, -1.0, 1.0) + 1.0))

    def from_env(self, actions: np.ndarray) -> np.ndarray:
        flat = np.asarray(actions, dtype=np.float64).reshape(len(actions), -1)
        return (2.0 * share_of_bounds(flat, self.low, self.high) - 1.0).clip(-1.0, 1.0).astype(np.float32)


class ImplicitQ(ActorAndCritics):
    """An `interfaces.ActingPolicy` that is learned from recorded transitions; critics see actions in [-1, 1]."""

    loss_type = "iql"
    head: BoundedGaussianHead

    def __init__(
        self, observation_space: spaces.Space, action_space: spaces.Space, options: ActorCriticOptions
    ) -> None:
        super().__init__(observation_space, action_space, options)
        sizes, chunk = options.hidden_sizes, options.num_action_chunks
        self.actor_body = body(self.actor_encoder.out_features, sizes, options.activation)
        self.head = BoundedGaussianHead(sizes[-1], self.joint_box(), options.init_log_std)
        self.granularity = Granularity(actions=chunk, dimensions=self.head.actions // chunk)
        width, layers = self.critic_encoder.out_features, partial(body, layer_norm=options.critic_layer_norm)
        self.critic = CriticEnsemble(
            width + self.head.actions, sizes, options.activation, count=options.num_critics, layers=layers
        )
        self.value_encoder = ObservationEncoder(observation_space, options)
        hidden = layers(self.value_encoder.out_features, sizes, options.activation)
        self.value = nn.Sequential(*hidden, nn.Linear(sizes[-1], 1))

    def parameters_of_value(self) -> list[nn.Parameter]:
        return [*self.value_encoder.parameters(), *self.value.parameters()]

    def judge(self, inputs: Mapping[str, Tensor], actions: Tensor) -> Tensor:
        """Return the critics' estimates [critics, N] for actions [N, A] in [-1, 1]."""
        return self.critic(self.critic_encoder(inputs), actions)

    def state_values(self, inputs: Mapping[str, Tensor]) -> Tensor:
        """Return the estimates [N] of the return from observations [N, ...] on."""
        return self.value(self.value_encoder(inputs))[:, 0]
