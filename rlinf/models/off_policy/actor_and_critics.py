"""An actor and critics, each with an encoder of its own: what SAC, CrossQ, TD3 and discrete SAC share."""

from __future__ import annotations

from collections.abc import Mapping

from gymnasium import spaces
from torch import Tensor, nn

from rlinf.models.actor_critic.encoders import ObservationEncoder
from rlinf.models.actor_critic.options import ActorCriticOptions
from rlinf.models.off_policy.networks import OffPolicyNetworks


class ActorAndCritics(OffPolicyNetworks):
    """A subclass makes ``actor_body``, ``head`` and ``critic``, in that order."""

    actor_body: nn.Module
    critic: nn.Module

    def __init__(
        self, observation_space: spaces.Space, action_space: spaces.Space, options: ActorCriticOptions
    ) -> None:
        super().__init__(observation_space, action_space, options)
        self.actor_encoder = ObservationEncoder(observation_space, options)
        self.critic_encoder = ObservationEncoder(observation_space, options)

    def actor_modules(self) -> list[nn.Module]:
        return [self.actor_encoder, self.actor_body, self.head]

    def critic_modules(self) -> list[nn.Module]:
        return [self.critic_encoder, self.critic]

    def parameters_of_actor(self) -> list[nn.Parameter]:
        return [parameter for module in self.actor_modules() for parameter in module.parameters()]

    def parameters_of_critic(self) -> list[nn.Parameter]:
        return [parameter for module in self.critic_modules() for parameter in module.parameters()]

    def distribution(self, inputs: Mapping[str, Tensor]) -> Tensor:
        """Parameters [N, ...] of the head's distribution at observations [N, ...]."""
        parameters: Tensor = self.head(self.actor_body(self.actor_encoder(inputs)))
        return self.legal(parameters, inputs)
