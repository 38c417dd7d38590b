"""A flow policy for soft actor-critic: a noisy chain of few steps, of exact likelihood (SAC Flow, arXiv:2509.25756).

Time runs from 0 (noise) to 1 (the action before its tanh), in S steps of length 1 / S:

    x' ~ Normal(x + v(x, t, s) / S, sigma(s)^2),   v(x, t, s) = sigmoid(g(x, t, s)) (c(x, t, s) - x)

The velocity is that of a gated recurrent unit ("Flow-G"): the gradient of a critic goes back through all steps and
neither grows nor vanishes. Each step's noise is learned, as in ReinFlow (arXiv:2505.22094). An action of the policy is
the whole chain of S + 1 points, so that its log-probability is a sum of normal ones, less the slope of the tanh.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from rlinf.models.actor_critic.distributions import LOG_SQRT_2PI, SquashedGaussianHead, log_tanh_slope
from rlinf.models.off_policy.soft_actor_critic import SoftActorCritic

_LOG_STD_RANGE = (-5.0, 2.0)
_FREQUENCIES = 4  # of the sines and cosines that tell the time
_OPEN = 5.0  # a first gate of 0.993: the velocity leads to the candidate


class GatedFlowHead(SquashedGaussianHead):
    """Features [N, F] are the parameters; chains are [N, (S + 1) A], and the environment gets the tanh of their ends.

    The density of the first point, which no weight moves, is left out of log-probabilities.
    """

    def __init__(self, features: int, space: spaces.Box, steps: int) -> None:
        super().__init__(features, space, 0.0)
        del self.mean, self.log_std
        self.steps = steps
        self.noise_size = (steps + 1) * self.actions
        self.action_shape = (self.noise_size,)
        inputs = features + self.actions + 2 * _FREQUENCIES
        self.gate = nn.Sequential(nn.Linear(inputs, features), nn.SiLU(), nn.Linear(features, self.actions))
        self.candidate = nn.Sequential(nn.Linear(inputs, features), nn.SiLU(), nn.Linear(features, self.actions))
        self.deviation = nn.Linear(features, self.actions)
        last = self.gate[-1]
        assert isinstance(last, nn.Linear)
        nn.init.zeros_(last.weight)
        nn.init.constant_(last.bias, _OPEN)
        angles = torch.arange(steps)[:, None] / steps * (2.0 ** torch.arange(_FREQUENCIES)) * math.pi
        self.register_buffer("times", torch.cat([angles.sin(), angles.cos()], dim=1), persistent=False)

    times: Tensor
    """[S, 2 frequencies]: the code of each step's time."""

    @property
    def draw_size(self) -> int:
        return self.noise_size

    def forward(self, features: Tensor) -> Tensor:
        return features

    def spread(self, features: Tensor) -> Tensor:
        """Logarithm of the standard deviation of every step [N, A]."""
        low, high = _LOG_STD_RANGE
        return low + 0.5 * (high - low) * (torch.tanh(self.deviation(features)) + 1.0)

    def ahead(self, features: Tensor, points: Tensor, number: int) -> Tensor:
        """Mean of the points [N, A] after step ``number`` from ``points`` [N, A]."""
        read = torch.cat([features, points, self.times[number].expand(len(points), -1)], dim=1)
        velocity = torch.sigmoid(self.gate(read)) * (self.candidate(read) - points)
        return points + velocity / self.steps

    def draw(self, parameters: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        first, *others = noise.unflatten(1, (self.steps + 1, self.actions)).unbind(1)
        log_std, points = self.spread(parameters), [first]
        for number, one in enumerate(others):
            points.append(self.ahead(parameters, points[-1], number) + log_std.exp() * one)
        steps = sum(-0.5 * one.square() - log_std - LOG_SQRT_2PI for one in others)
        return torch.cat(points, dim=1), steps - log_tanh_slope(points[-1])

    def sample(self, parameters: Tensor, noise: Tensor) -> Tensor:
        return self.draw(parameters, noise)[0]

    def mode(self, parameters: Tensor) -> Tensor:
        """Return noiseless chains from 0."""
        points = [parameters.new_zeros(len(parameters), self.actions)]
        for number in range(self.steps):
            points.append(self.ahead(parameters, points[-1], number))
        return torch.cat(points, dim=1)

    def log_prob(self, parameters: Tensor, actions: Tensor) -> Tensor:
        points = actions.unflatten(1, (self.steps + 1, self.actions)).unbind(1)
        log_std, total = self.spread(parameters), -log_tanh_slope(points[-1])
        for number, (before, after) in enumerate(itertools.pairwise(points)):
            error = (after - self.ahead(parameters, before, number)) * torch.exp(-log_std)
            total = total - 0.5 * error.square() - log_std - LOG_SQRT_2PI
        return total

    def entropy(self, parameters: Tensor) -> Tensor:
        """Entropy of each number's steps [N, A], before the tanh."""
        return self.steps * (self.spread(parameters) + 0.5 + LOG_SQRT_2PI)

    def ends(self, chains: Tensor) -> Tensor:
        """Return the last points [N, A] of chains [N, (S + 1) A]."""
        return chains[:, -self.actions :]

    def to_env(self, actions: np.ndarray) -> np.ndarray:
        return super().to_env(actions[:, -self.actions :])

    def from_env(self, actions: np.ndarray) -> np.ndarray:
        """Return chains of zeros that end in these actions: critics read no more of a recorded action."""
        ends = super().from_env(actions)
        return np.concatenate([np.zeros((len(ends), self.steps * self.actions), np.float32), ends], axis=1)


class SoftFlowActorCritic(SoftActorCritic):
    """An `interfaces.ActingPolicy` of a flow, whose critics judge the ends of its chains."""

    loss_type = "sac_flow"
    head: GatedFlowHead

    def make_head(self, width: int) -> GatedFlowHead:
        return GatedFlowHead(width, self.joint_box(), self.options.denoising_steps)

    def squashed(self, actions: Tensor) -> Tensor:
        return torch.tanh(self.head.ends(actions))
