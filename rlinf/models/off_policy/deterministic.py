"""TD3's networks (Fujimoto et al., arXiv:1802.09477): a deterministic actor and critics of state and action."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from rlinf.data.granularity import Granularity
from rlinf.models.actor_critic.distributions import LOG_SQRT_2PI, BoxHead
from rlinf.models.actor_critic.options import ActorCriticOptions
from rlinf.models.off_policy.actor_and_critics import ActorAndCritics
from rlinf.models.off_policy.layers import CriticEnsemble, body


class TanhHead(BoxHead):
    """tanh of a linear layer, stretched to the bounds; exploration adds clipped Gaussian noise. Actions: [-1, 1].

    While :attr:`uniform` is set, actions are drawn uniformly instead, whatever is observed: the first transitions of a
    buffer. Its value travels with the weights.
    """

    noise_kind = "normal"
    uniform: Tensor

    def __init__(self, features: int, space: spaces.Box, exploration_noise: float) -> None:
        super().__init__(space)
        self.require_finite_bounds("loss_type: td3 and ddpg need", "bound them by a wrapper")
        (self.noise_size,) = self.action_shape
        self.exploration_noise = exploration_noise
        self.mean = nn.Linear(features, self.noise_size)
        self.register_buffer("uniform", torch.zeros((), dtype=torch.bool))

    def forward(self, features: Tensor) -> Tensor:
        return torch.tanh(self.mean(features))

    def sample(self, parameters: Tensor, noise: Tensor) -> Tensor:
        if bool(self.uniform):
            return torch.erf(noise / math.sqrt(2.0))  # the distribution function of a normal number is uniform
        return (parameters + self.exploration_noise * noise).clamp(-1.0, 1.0)

    def mode(self, parameters: Tensor) -> Tensor:
        return parameters

    def log_prob(self, parameters: Tensor, actions: Tensor) -> Tensor:
        if bool(self.uniform):
            return torch.full_like(actions, -math.log(2.0))
        scale = self.exploration_noise
        return -0.5 * ((actions - parameters) / scale).square() - math.log(scale) - LOG_SQRT_2PI

    def entropy(self, parameters: Tensor) -> Tensor:
        drawn = math.log(2.0) if bool(self.uniform) else math.log(self.exploration_noise) + 0.5 + LOG_SQRT_2PI
        return torch.full_like(parameters, drawn)

    def to_env(self, actions: np.ndarray) -> np.ndarray:
        return self._from_unit(0.5 * (actions + 1.0))


class DeterministicActorCritic(ActorAndCritics):
    """An `interfaces.ActingPolicy` that acts by its mean and Gaussian noise; critics see actions in [-1, 1]."""

    loss_type = "td3"
    single_critic: ClassVar[bool] = False
    """One critic, whatever `policy.num_critics`."""
    head: TanhHead
    critic: CriticEnsemble

    def __init__(
        self, observation_space: spaces.Space, action_space: spaces.Space, options: ActorCriticOptions
    ) -> None:
        super().__init__(observation_space, action_space, options)
        self.actor_body = body(self.actor_encoder.out_features, options.hidden_sizes, options.activation)
        self.head = TanhHead(options.hidden_sizes[-1], self.joint_box(), options.exploration_noise)
        chunk = options.num_action_chunks
        self.granularity = Granularity(actions=chunk, dimensions=self.head.noise_size // chunk)
        width = self.critic_encoder.out_features + self.head.noise_size
        count = 1 if self.single_critic else options.num_critics
        self.critic = CriticEnsemble(width, options.hidden_sizes, options.activation, count=count)

    def judge(self, inputs: Mapping[str, Tensor], actions: Tensor) -> Tensor:
        """Return the critics' estimates [critics, N] for actions [N, A] in [-1, 1]."""
        return self.critic(self.critic_encoder(inputs), actions)

    def judge_by_first(self, inputs: Mapping[str, Tensor], actions: Tensor) -> Tensor:
        """Return the first critic's estimates [N, 1]: an actor that follows it alone need not pay for the others."""
        return self.critic.first(self.critic_encoder(inputs), actions)
