"""Networks of discrete soft actor-critic (Christodoulou, arXiv:1910.07207): a categorical actor, two Q-networks."""

from __future__ import annotations

from collections.abc import Mapping

from gymnasium import spaces
from torch import Tensor, nn

from rlinf.granularity import Granularity
from rlinf.models.actor_critic.distributions import CategoricalHead
from rlinf.models.actor_critic.encoders import ObservationEncoder
from rlinf.models.actor_critic.options import ActorCriticOptions
from rlinf.models.off_policy.layers import TwinCritic, body
from rlinf.models.off_policy.networks import OffPolicyNetworks


class DiscreteSoftActorCritic(OffPolicyNetworks):
    """An `interfaces.ActingPolicy` that draws from a softmax; each critic tells the value of every action at once."""

    loss_type = "discrete_sac"
    action_spaces = spaces.Discrete
    head: CategoricalHead

    def __init__(
        self, observation_space: spaces.Space, action_space: spaces.Space, options: ActorCriticOptions
    ) -> None:
        super().__init__(observation_space, action_space, options)
        assert isinstance(action_space, spaces.Discrete)
        self.actor_encoder = ObservationEncoder(observation_space, options)
        self.critic_encoder = ObservationEncoder(observation_space, options)
        self.actor_body = body(self.actor_encoder.out_features, options.hidden_sizes, options.activation)
        self.head = CategoricalHead(options.hidden_sizes[-1], action_space)
        self.granularity = Granularity(actions=1, dimensions=1)
        outputs = self.head.noise_size
        self.critic = TwinCritic(self.critic_encoder.out_features, options.hidden_sizes, options.activation, outputs)

    def parameters_of_actor(self) -> list[nn.Parameter]:
        return [*self.actor_encoder.parameters(), *self.actor_body.parameters(), *self.head.parameters()]

    def parameters_of_critic(self) -> list[nn.Parameter]:
        return [*self.critic_encoder.parameters(), *self.critic.parameters()]

    def distribution(self, inputs: Mapping[str, Tensor]) -> Tensor:
        """Logits [N, n] at observations [N, ...]."""
        return self.head(self.actor_body(self.actor_encoder(inputs)))

    def judge(self, inputs: Mapping[str, Tensor]) -> Tensor:
        """Both critics' estimates [2, N, n] for all actions."""
        return self.critic(self.critic_encoder(inputs))
