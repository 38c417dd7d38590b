"""CrossQ's networks (Bhatt et al., arXiv:1902.05605): those of soft actor-critic with batch renormalisation before
each linear layer, of the actor and of the critics."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from rlinf.models.actor_critic.layers import activation_module
from rlinf.models.actor_critic.options import Activation
from rlinf.models.off_policy.layers import CriticEnsemble, TransposedLinear
from rlinf.models.off_policy.soft_actor_critic import SoftActorCritic

_MOMENTUM = 0.01
_EPS = 1e-3
_WARMUP_UPDATES = 100_000  # plain batch normalisation so long, as in the authors' code
_LARGEST_SCALE, _LARGEST_SHIFT = 3.0, 5.0


class BatchRenorm(nn.Module):
    """Batch renormalisation (Ioffe, arXiv:1702.03275): [N, F] to [N, F].

    In training mode with the statistics of the batch, corrected towards the running ones after a warm-up; otherwise
    with the running ones.
    """

    mean: Tensor
    variance: Tensor
    updates: Tensor

    def __init__(self, features: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(features))
        self.shift = nn.Parameter(torch.zeros(features))
        self.register_buffer("mean", torch.zeros(features))
        self.register_buffer("variance", torch.ones(features))
        self.register_buffer("updates", torch.zeros((), dtype=torch.int64))

    def forward(self, values: Tensor) -> Tensor:
        if not self.training:
            return (values - self.mean) * torch.rsqrt(self.variance + _EPS) * self.scale + self.shift
        mean, variance = values.mean(0), values.var(0, unbiased=False)
        normal = (values - mean) * torch.rsqrt(variance + _EPS)
        if int(self.updates) >= _WARMUP_UPDATES:
            before = torch.sqrt(self.variance + _EPS)
            ratio = (torch.sqrt(variance.detach() + _EPS) / before).clamp(1.0 / _LARGEST_SCALE, _LARGEST_SCALE)
            drift = ((mean.detach() - self.mean) / before).clamp(-_LARGEST_SHIFT, _LARGEST_SHIFT)
            normal = normal * ratio + drift
        with torch.no_grad():
            self.mean.lerp_(mean, _MOMENTUM)
            self.variance.lerp_(variance, _MOMENTUM)
            self.updates += 1
        return normal * self.scale + self.shift


class CrossQ(SoftActorCritic):
    """Soft actor-critic's actor and critics, normalised. Training mode is for the learner's own passes alone."""

    loss_type = "crossq"

    def make_body(self, inputs: int) -> nn.Module:
        return normalised_body(inputs, self.options.hidden_sizes, self.options.activation)

    def make_critic(self, inputs: int) -> nn.Module:
        return CriticEnsemble(inputs, self.options.hidden_sizes, self.options.activation, layers=_normalised_critic)


def normalised_body(inputs: int, hidden: Sequence[int], activation: Activation) -> nn.Sequential:
    """[N, inputs] to [N, hidden[-1]]."""
    layers: list[nn.Module] = []
    for width in hidden:
        layers += [BatchRenorm(inputs), TransposedLinear(inputs, width), activation_module(activation)]
        inputs = width
    return nn.Sequential(*layers)


def _normalised_critic(inputs: int, hidden: Sequence[int], activation: Activation) -> nn.Sequential:
    """Build the same with the input of the layer behind it normalised too."""
    return nn.Sequential(*normalised_body(inputs, hidden, activation), BatchRenorm(hidden[-1]))
