"""Soft actor-critic's networks: a squashed Gaussian actor and two critics of state and action.

With chunks of K actions the actor decides on all of them at once, and the critics judge the whole chunk
(Q-chunking, arXiv:2507.07969): one transition is one decision, its reward the sum over the actions carried out.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Self

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from rlinf.granularity import Granularity
from rlinf.models.actor_critic.chunks import chunked_space, split_chunk
from rlinf.models.actor_critic.distributions import SquashedGaussianHead
from rlinf.models.actor_critic.encoders import ObservationEncoder
from rlinf.models.actor_critic.export import load_policy, save_policy
from rlinf.models.actor_critic.layers import activation_module
from rlinf.models.actor_critic.options import Activation, ActorCriticOptions
from rlinf.spaces import SpaceError
from rlinf.types import Costs, Inputs, ObservationInputs, PolicyOutput

_LOG_STD_RANGE = (-20.0, 2.0)


class StateDependentSquashedHead(SquashedGaussianHead):
    """Mean and standard deviation both depend on the state."""

    def __init__(self, features: int, space: spaces.Box) -> None:
        super().__init__(features, space, 0.0)
        self.mean = nn.Linear(features, 2 * self.noise_size)
        del self.log_std

    def forward(self, features: Tensor) -> Tensor:
        mean, log_std = self.mean(features).chunk(2, dim=-1)
        return torch.stack([mean, log_std.clamp(*_LOG_STD_RANGE)], dim=1)


class TransposedLinear(nn.Module):
    """A linear layer whose weight lies [in, out], with the uniform first weights that are customary off-policy.

    With few inputs the products of its backward pass take a fifth of the time that those of `nn.Linear` do.
    """

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        bound = 1.0 / math.sqrt(inputs)
        self.weight = nn.Parameter(torch.empty(inputs, outputs).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(outputs).uniform_(-bound, bound))

    def forward(self, values: Tensor) -> Tensor:
        """[N, in] to [N, out]."""
        return torch.addmm(self.bias, values, self.weight)


class TwinCritic(nn.Module):
    """Two independent estimates of the return of (features [N, F], action [N, A]): [2, N].

    As batched products of both they would be no faster: these are slow with the thin first and last layers.
    """

    def __init__(self, inputs: int, hidden: Sequence[int], activation: Activation) -> None:
        super().__init__()
        critics = [[*_body(inputs, hidden, activation), nn.Linear(hidden[-1], 1)] for _ in range(2)]
        self.critics = nn.ModuleList(nn.Sequential(*layers) for layers in critics)

    def forward(self, features: Tensor, actions: Tensor) -> Tensor:
        joint = torch.cat([features, actions], dim=-1)
        return torch.cat([critic(joint) for critic in self.critics], dim=1).T


class SoftActorCritic(nn.Module):
    """An `interfaces.ActingPolicy` whose critics judge actions, not states. Actions are kept unsquashed.

    Image observations are encoded for actor and critics separately; the critics see tanh(action), in [-1, 1].
    """

    def __init__(
        self, observation_space: spaces.Space, action_space: spaces.Space, options: ActorCriticOptions
    ) -> None:
        super().__init__()
        if not isinstance(action_space, spaces.Box):
            raise SpaceError(
                f"loss_type: sac needs continuous actions (a Box), got {action_space}. Choose adv_type: gae with "
                "loss_type: actor_critic (PPO), or adv_type: grpo"
            )
        if options.recurrent != "none":
            raise ValueError("loss_type sac knows no recurrent policies")
        self.options = options
        self._spaces = (observation_space, action_space)
        self.actor_encoder = ObservationEncoder(observation_space, options)
        self.critic_encoder = ObservationEncoder(observation_space, options)
        self.actor_body = _body(self.actor_encoder.out_features, options.hidden_sizes, options.activation)
        chunk = options.num_action_chunks
        joint_space = action_space if chunk == 1 else chunked_space(action_space, chunk)
        assert isinstance(joint_space, spaces.Box)
        self.head = StateDependentSquashedHead(options.hidden_sizes[-1], joint_space)
        self.granularity = Granularity(actions=chunk, dimensions=self.head.noise_size // chunk)
        width = self.critic_encoder.out_features + self.head.noise_size
        self.critic = TwinCritic(width, options.hidden_sizes, options.activation)

    state_size = 0
    positions_independent = True
    noise_kind = "normal"
    action_dtype = np.float32

    @property
    def noise_size(self) -> int:
        return self.head.noise_size

    @property
    def action_shape(self) -> tuple[int, ...]:
        return self.head.action_shape

    def parameters_of_actor(self) -> list[nn.Parameter]:
        return [*self.actor_encoder.parameters(), *self.actor_body.parameters(), *self.head.parameters()]

    def parameters_of_critic(self) -> list[nn.Parameter]:
        return [*self.critic_encoder.parameters(), *self.critic.parameters()]

    def distribution(self, inputs: Mapping[str, Tensor]) -> Tensor:
        """Parameters [N, 2, A] of the actor at observations [N, ...]."""
        return self.head(self.actor_body(self.actor_encoder(inputs)))

    def draw(self, inputs: Mapping[str, Tensor], noise: Tensor) -> tuple[Tensor, Tensor]:
        """Unsquashed actions [N, A] and their log-probabilities [N], differentiable in the actor's weights."""
        actions, logprobs = self.head.draw(self.distribution(inputs), noise)
        return actions, logprobs.sum(-1)

    def judge(self, inputs: Mapping[str, Tensor], actions: Tensor) -> Tensor:
        """Both critics' estimates [2, N] for unsquashed actions [N, A]."""
        return self.critic(self.critic_encoder(inputs), torch.tanh(actions))

    @torch.no_grad()
    def step(self, observations: Mapping[str, Tensor], state: Tensor, noise: Tensor | None) -> tuple[Tensor, Tensor]:
        """Actions [N, A]; greedy where ``noise`` is None. There is no recurrent state."""
        parameters = self.distribution(observations)
        return self.head.mode(parameters) if noise is None else self.head.sample(parameters, noise), state

    def evaluate(self, inputs: Inputs, actions: Tensor, mask: Tensor, *, with_entropy: bool = True) -> PolicyOutput:
        """Log-probabilities and entropy [B, T]; of a chunk, those of the actions carried out."""
        given = ObservationInputs.of(inputs)
        positions, executed = self.granularity, given.executed
        chunks = (*mask.shape, positions.actions, positions.dimensions)
        parameters = self.distribution({n: given.observations[n].flatten(0, 1) for n in self.actor_encoder.leaves})
        logprobs = self.head.log_prob(parameters, actions.flatten(0, 1)).view(chunks)
        entropy = self.head.entropy(parameters).view(chunks) if with_entropy else None
        return PolicyOutput(
            positions.logprobs(logprobs, executed), None if entropy is None else positions.entropy(entropy, executed)
        )

    def observe(self, inputs: Inputs, mask: Tensor) -> None:
        """Takes the valid positions [B, T, ...] into the running statistics."""
        if self.options.normalize_observations:
            device = next(self.parameters()).device
            leaves = ObservationInputs.of(inputs).observations
            rows = {name: leaves[name][mask].to(device) for name in self.actor_encoder.leaves}
            self.actor_encoder.observe(rows)
            self.critic_encoder.observe(rows)

    def costs(self, inputs: Inputs, mask: Tensor) -> Costs:
        return Costs(mask.sum(dim=1).clamp(min=1))

    def weights(self) -> Iterator[tuple[str, Tensor]]:
        """Every weight and every running statistic, by name."""
        for name, tensor in self.state_dict().items():
            yield name, tensor.detach()

    def save_pretrained(self, folder: str) -> None:
        """Writes the weights and what :meth:`from_pretrained` builds the policy from."""
        save_policy(self, folder, self._spaces, self.options)

    @classmethod
    def from_pretrained(cls, folder: str) -> Self:
        """The policy of an exported folder; see `actor_critic.export` on trusting it."""
        observation_space, action_space, options, weights = load_policy(folder)
        policy = cls(observation_space, action_space, options)
        policy.load_state_dict(weights)
        return policy

    def env_actions(self, actions: np.ndarray) -> np.ndarray:
        """What the environment takes for actions [N, A] of this policy; with chunks [N, K, ...]."""
        joint, chunk = self.head.to_env(actions), self.options.num_action_chunks
        return joint if chunk == 1 else split_chunk(joint, self._spaces[1], chunk)


def _body(inputs: int, hidden: Sequence[int], activation: Activation) -> nn.Sequential:
    """[N, inputs] to [N, hidden[-1]]."""
    layers: list[nn.Module] = [TransposedLinear(inputs, hidden[0]), activation_module(activation)]
    for before, width in itertools.pairwise(hidden):
        layers += [nn.Linear(before, width), activation_module(activation)]
    return nn.Sequential(*layers)
