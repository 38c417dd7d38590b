"""Networks of discrete soft actor-critic (Christodoulou, arXiv:1910.07207): a categorical actor, two Q-networks."""

from __future__ import annotations

from collections.abc import Mapping

from gymnasium import spaces
from torch import Tensor

from rlinf.data.granularity import Granularity
from rlinf.models.actor_critic.distributions import CategoricalHead
from rlinf.models.actor_critic.options import ActorCriticOptions
from rlinf.models.off_policy.actor_and_critics import ActorAndCritics
from rlinf.models.off_policy.layers import CriticEnsemble, body


class DiscreteSoftActorCritic(ActorAndCritics):
    """An `interfaces.ActingPolicy` that draws from a softmax; each critic tells the value of every action at once."""

    loss_type = "discrete_sac"
    action_spaces = spaces.Discrete
    head: CategoricalHead

    def __init__(
        self, observation_space: spaces.Space, action_space: spaces.Space, options: ActorCriticOptions
    ) -> None:
        super().__init__(observation_space, action_space, options)
        assert isinstance(action_space, spaces.Discrete)
        self.actor_body = body(self.actor_encoder.out_features, options.hidden_sizes, options.activation)
        self.head = CategoricalHead(options.hidden_sizes[-1], action_space)
        self.granularity = Granularity(actions=1, dimensions=1)
        outputs = self.head.noise_size
        self.critic = CriticEnsemble(
            self.critic_encoder.out_features, options.hidden_sizes, options.activation, outputs
        )

    def judge(self, inputs: Mapping[str, Tensor]) -> Tensor:
        """Both critics' estimates [2, N, n] for all actions."""
        return self.critic(self.critic_encoder(inputs))
