"""DQN's network: the value of each discrete action, plain or dueling (Wang et al., arXiv:1511.06581)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from rlinf.data.granularity import Granularity
from rlinf.models.actor_critic.distributions import ILLEGAL, ActionHead
from rlinf.models.actor_critic.encoders import ObservationEncoder
from rlinf.models.actor_critic.options import ActorCriticOptions
from rlinf.models.off_policy.layers import body
from rlinf.models.off_policy.networks import OffPolicyNetworks

_LEAST_EPSILON = 1e-6  # log-probabilities stay finite where exploration is off


class EpsilonGreedyHead(ActionHead):
    """Values of n actions [N, n]; the best one is taken, or any with probability :attr:`epsilon`.

    ``dueling``: Q(s, a) = V(s) + A(s, a) - mean A(s, .). The value of epsilon travels with the weights.
    """

    noise_kind = "uniform"
    noise_size = 2
    action_shape: tuple[int, ...] = ()
    action_dtype = np.int64
    epsilon: Tensor

    def __init__(self, features: int, space: spaces.Discrete, *, dueling: bool) -> None:
        super().__init__()
        self.count, self.first = int(space.n), int(space.start)
        self.advantages = nn.Linear(features, self.count)
        self.value = nn.Linear(features, 1) if dueling else None
        self.register_buffer("epsilon", torch.zeros(()))

    def forward(self, features: Tensor) -> Tensor:
        advantages = self.advantages(features)
        if self.value is None:
            return advantages
        return self.value(features) + advantages - advantages.mean(dim=-1, keepdim=True)

    def sample(self, parameters: Tensor, noise: Tensor) -> Tensor:
        legal = self._legal(parameters)
        count = legal.sum(-1)
        drawn = torch.minimum((noise[:, 1] * count).long(), count - 1)
        # The legal action with the drawn number, in their order.
        anyone = (legal.cumsum(-1) > drawn[:, None]).byte().argmax(-1)
        return torch.where(noise[:, 0] < self.epsilon, anyone, self.mode(parameters))

    def _legal(self, parameters: Tensor) -> Tensor:
        return parameters > ILLEGAL / 2

    def mode(self, parameters: Tensor) -> Tensor:
        return parameters.argmax(-1)

    def _probabilities(self, parameters: Tensor) -> Tensor:
        epsilon = self.epsilon.clamp_min(_LEAST_EPSILON)
        greedy = nn.functional.one_hot(self.mode(parameters), self.count)
        legal = self._legal(parameters)
        return epsilon / legal.sum(-1, keepdim=True) * legal + (1.0 - epsilon) * greedy

    def log_prob(self, parameters: Tensor, actions: Tensor) -> Tensor:
        return self._probabilities(parameters).gather(-1, actions.long()[:, None]).log()

    def entropy(self, parameters: Tensor) -> Tensor:
        probabilities = self._probabilities(parameters)
        return torch.special.entr(probabilities).sum(-1, keepdim=True)

    def to_env(self, actions: np.ndarray) -> np.ndarray:
        return actions + self.first


class QNetwork(OffPolicyNetworks):
    """An `interfaces.ActingPolicy` that takes the action of the highest value, or explores with probability epsilon."""

    loss_type = "dqn"
    action_spaces = spaces.Discrete
    head: EpsilonGreedyHead

    def __init__(
        self, observation_space: spaces.Space, action_space: spaces.Space, options: ActorCriticOptions
    ) -> None:
        super().__init__(observation_space, action_space, options)
        assert isinstance(action_space, spaces.Discrete)
        self.encoder = ObservationEncoder(observation_space, options)
        self.body = body(self.encoder.out_features, options.hidden_sizes, options.activation)
        self.head = EpsilonGreedyHead(options.hidden_sizes[-1], action_space, dueling=options.dueling)
        self.granularity = Granularity(actions=1, dimensions=1)

    def distribution(self, inputs: Mapping[str, Tensor]) -> Tensor:
        """Values [N, n] of all actions at observations [N, ...]."""
        return self.legal(self.head(self.body(self.encoder(inputs))), inputs)
