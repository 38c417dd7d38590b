"""An encoder, an action distribution and a whole policy of one's own, for simulators."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Self

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from rlinf.data.batch import Costs
from rlinf.data.granularity import Granularity
from rlinf.data.inputs import Inputs, ObservationInputs
from rlinf.data.messages import PolicyOutput
from rlinf.models.actor_critic.distributions import BoxHead


class FourierFeatures(nn.Module):
    """`policy.encoder: mine:FourierFeatures`: sines and cosines of random projections of the observation."""

    def __init__(self, space: spaces.Space, *, features: int = 64, scale: float = 0.5) -> None:
        super().__init__()
        assert isinstance(space, spaces.Box)
        self.out_features = features
        self.project = nn.Linear(math.prod(space.shape), features // 2)
        nn.init.normal_(self.project.weight, std=scale)

    def forward(self, leaves: Mapping[str, Tensor]) -> Tensor:
        """Observations [N, ...] by leaf to [N, features]."""
        waves = self.project(leaves["observation"].float().flatten(1))
        return torch.cat([waves.sin(), waves.cos()], dim=1)


class LaplaceHead(BoxHead):
    """`policy.distribution: mine:LaplaceHead`: independent Laplace numbers, clipped to the bounds by `to_env`."""

    noise_kind = "uniform"

    def __init__(self, features: int, space: spaces.Box, *, scale: float = 0.5) -> None:
        super().__init__(space)
        (self.noise_size,) = self.action_shape
        self.location = nn.Linear(features, self.noise_size)
        self.log_scale = nn.Parameter(torch.full((self.noise_size,), math.log(scale)))

    def forward(self, features: Tensor) -> Tensor:
        """[N, F] to parameters [N, 2, A]."""
        location = self.location(features)
        return torch.stack([location, self.log_scale.expand_as(location)], dim=1)

    def sample(self, parameters: Tensor, noise: Tensor) -> Tensor:
        """The quantiles of uniform numbers [N, A]: the caller draws them, so that runs can be repeated."""
        centred = noise.clamp(1e-6, 1 - 1e-6) - 0.5
        return parameters[:, 0] - parameters[:, 1].exp() * centred.sign() * torch.log1p(-2 * centred.abs())

    def mode(self, parameters: Tensor) -> Tensor:
        return parameters[:, 0]

    def log_prob(self, parameters: Tensor, actions: Tensor) -> Tensor:
        location, log_scale = parameters.unbind(1)
        return -(actions - location).abs() * torch.exp(-log_scale) - log_scale - math.log(2.0)

    def entropy(self, parameters: Tensor) -> Tensor:
        return 1.0 + math.log(2.0) + parameters[:, 1]

    def to_env(self, actions: np.ndarray) -> np.ndarray:
        return self._shaped(np.clip(actions, self.low, self.high))

    def from_env(self, actions: np.ndarray) -> np.ndarray:
        return np.asarray(actions, dtype=np.float32).reshape(len(actions), -1)


class LinearPolicy(nn.Module):
    """`policy.name: mine:LinearPolicy`: a Gaussian around a linear function, and a linear critic."""

    state_size = 0
    positions_independent = True
    noise_kind = "normal"
    action_dtype = np.float32
    imitation_noise = 0

    def __init__(self, observation_space: spaces.Box, action_space: spaces.Box, *, std: float = 0.5) -> None:
        super().__init__()
        self.spaces, self.options = (observation_space, action_space), {"std": std}
        inputs, self.noise_size = math.prod(observation_space.shape), math.prod(action_space.shape)
        self.action_shape = (self.noise_size,)
        self.granularity = Granularity(actions=1, dimensions=self.noise_size)
        self.mean, self.critic = nn.Linear(inputs, self.noise_size), nn.Linear(inputs, 1)
        self.log_std = nn.Parameter(torch.full((self.noise_size,), math.log(std)))

    def step(self, observations: Mapping[str, Tensor], state: Tensor, noise: Tensor | None) -> tuple[Tensor, Tensor]:
        """Actions [N, A], the most likely ones without noise [N, A]; ``state`` [N, 0] as it came."""
        mean = self.mean(observations["observation"].float())
        return mean if noise is None else mean + self.log_std.exp() * noise, state

    def evaluate(self, inputs: Inputs, actions: Tensor, mask: Tensor, *, with_entropy: bool = True) -> PolicyOutput:
        """Log-probabilities, entropy and values [B, T], with gradient."""
        seen = ObservationInputs.of(inputs).observations["observation"].float()
        drawn = torch.distributions.Normal(self.mean(seen), self.log_std.exp())
        logprobs, values = drawn.log_prob(actions).sum(-1), self.critic(seen)[..., 0]
        entropy = drawn.entropy().sum(-1)
        return PolicyOutput(*(torch.where(mask, column, 0.0) for column in (logprobs, entropy, values)))

    def values(self, observations: Mapping[str, Tensor], state: Tensor) -> Tensor:
        """[N]."""
        return self.critic(observations["observation"].float())[:, 0]

    def states(self, inputs: Inputs, shape: torch.Size) -> Tensor:
        return torch.zeros(shape.numel(), 0)

    def observe(self, inputs: Inputs, mask: Tensor) -> None:
        """No running statistics."""

    def costs(self, inputs: Inputs, mask: Tensor) -> Costs:
        return Costs(mask.sum(dim=1).clamp(min=1))

    def weights(self) -> Iterator[tuple[str, Tensor]]:
        yield from ((name, tensor.detach()) for name, tensor in self.state_dict().items())

    def env_actions(self, actions: np.ndarray) -> np.ndarray:
        low, high = self.spaces[1].low, self.spaces[1].high
        return np.clip(actions.reshape(-1, *low.shape), low, high)

    def own_actions(self, actions: np.ndarray) -> np.ndarray:
        return actions.reshape(len(actions), -1).astype(np.float32)

    def save_pretrained(self, folder: str) -> None:
        target = Path(folder)
        target.mkdir(parents=True, exist_ok=True)
        torch.save(self.state_dict(), target / "linear.pt")
        shapes = [list(space.shape) for space in self.spaces]
        (target / "linear.json").write_text(json.dumps({"options": self.options, "shapes": shapes}))

    @classmethod
    def from_pretrained(cls, folder: str) -> Self:
        """With unbounded spaces of the same shapes: bounds are the environment's."""
        written = json.loads((Path(folder) / "linear.json").read_text())
        seen, acted = (spaces.Box(-np.inf, np.inf, tuple(shape)) for shape in written["shapes"])
        policy = cls(seen, acted, **written["options"])
        policy.load_state_dict(torch.load(Path(folder) / "linear.pt", weights_only=True))
        return policy
