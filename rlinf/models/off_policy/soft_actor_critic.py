"""Soft actor-critic's networks: a squashed Gaussian actor and critics of state and action.

With chunks of K actions the actor decides on all of them at once, and the critics judge the whole chunk
(Q-chunking, arXiv:2507.07969): one transition is one decision, its reward the sum over the actions carried out.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import ClassVar

import torch
from gymnasium import spaces
from torch import Tensor, nn

from rlinf.data.granularity import Granularity
from rlinf.models.actor_critic.distributions import SquashedGaussianHead
from rlinf.models.actor_critic.options import ActorCriticOptions
from rlinf.models.actor_critic.state_dependent import SoftStateDependentNoiseHead
from rlinf.models.off_policy.actor_and_critics import ActorAndCritics
from rlinf.models.off_policy.layers import CriticEnsemble, body

_LOG_STD_RANGE = (-20.0, 2.0)


class StateDependentSquashedHead(SquashedGaussianHead):
    """Mean and standard deviation both depend on the state."""

    def __init__(self, features: int, space: spaces.Box) -> None:
        super().__init__(features, space, 0.0)
        self.mean = nn.Linear(features, 2 * self.actions)
        del self.log_std

    def forward(self, features: Tensor) -> Tensor:
        mean, log_std = self.mean(features).chunk(2, dim=-1)
        return torch.stack([mean, log_std.clamp(*_LOG_STD_RANGE)], dim=1)


class SoftActorCritic(ActorAndCritics):
    """An `interfaces.ActingPolicy` whose critics judge actions, not states. Actions are kept unsquashed.

    Image observations are encoded for actor and critics separately; the critics see tanh(action), in [-1, 1].
    """

    loss_type = "sac"
    gives_quantiles: ClassVar[bool] = False
    """A critic gives `policy.num_quantiles` numbers for an action, not one."""
    head: SquashedGaussianHead

    def __init__(
        self, observation_space: spaces.Space, action_space: spaces.Space, options: ActorCriticOptions
    ) -> None:
        super().__init__(observation_space, action_space, options)
        # Layers behind a memory read what it remembers.
        memory = options.embedding_size if self.remembers else None
        self.actor_body = self.make_body(memory or self.actor_encoder.out_features)
        width, chunk = options.hidden_sizes[-1], options.num_action_chunks
        self.head = self.make_head(width)
        self.granularity = Granularity(actions=chunk, dimensions=self.head.actions // chunk)
        self.critic = self.make_critic((memory or self.critic_encoder.out_features) + self.head.actions)

    def make_head(self, width: int) -> SquashedGaussianHead:
        """Build what turns hidden layers [N, width] into actions."""
        if self.options.use_sde:
            return SoftStateDependentNoiseHead(width, self.joint_box(), self.options.init_log_std)
        return StateDependentSquashedHead(width, self.joint_box())

    def make_body(self, inputs: int) -> nn.Module:
        """Build the actor's hidden layers, [N, inputs] to [N, hidden_sizes[-1]]."""
        return body(inputs, self.options.hidden_sizes, self.options.activation)

    def make_critic(self, inputs: int) -> nn.Module:
        """All critics, of features and actions with ``inputs`` numbers together."""
        options = self.options
        return CriticEnsemble(
            inputs,
            options.hidden_sizes,
            options.activation,
            options.num_quantiles if self.gives_quantiles else 1,
            count=options.num_critics,
            layers=functools.partial(body, layer_norm=options.critic_layer_norm),
        )

    def draw(self, inputs: Mapping[str, Tensor], noise: Tensor) -> tuple[Tensor, Tensor]:
        """Unsquashed actions [N, A] and their log-probabilities [N], differentiable in the actor's weights.

        ``noise`` is [N, draw_size of the head]."""
        return self.drawn(self.distribution(inputs), noise)

    def drawn(self, parameters: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Return the same from the parameters [N, ...] of the head's distribution."""
        actions, logprobs = self.head.draw(parameters, noise)
        return actions, logprobs.sum(-1)

    def judge(self, inputs: Mapping[str, Tensor], actions: Tensor) -> Tensor:
        """Return the critics' estimates [critics, N] for unsquashed actions [N, A]."""
        return self.critic(self.critic_encoder(inputs), self.squashed(actions))

    def squashed(self, actions: Tensor) -> Tensor:
        """Return what critics see of actions [N, ...]: numbers [N, A] in [-1, 1]."""
        return torch.tanh(actions)
