"""Generalised state-dependent exploration (gSDE; Raffin et al., arXiv:2005.05719): noise by a function of features.

The noise of a decision is ``features @ (std * matrix)``, of standard normal numbers [F, A] in the matrix. Kept over
several decisions (`policy.sde_sample_freq`) it changes smoothly with the state, which real robots can follow. Each
action alone is normal with the variance ``features^2 @ std^2 + 1e-6``; the last term is that of a feature which is
always one.
"""

from __future__ import annotations

import torch
from gymnasium import spaces
from torch import Tensor

from rlinf.data.spaces import SpaceError
from rlinf.models.actor_critic.distributions import GaussianHead, SquashedGaussianHead
from rlinf.models.actor_critic.options import Distribution

_CONSTANT_STD = 1e-3


class StateDependentNoiseHead(GaussianHead):
    """A normal with one standard deviation for each feature and number of an action.

    Parameters [N, 2 A + F] are mean, logarithm of the deviation, and features.
    """

    learns_features = False
    """Whether gradients of the deviation reach the features."""
    mean_bound: float | None = None
    """Means are cut to this size."""

    def __init__(self, features: int, space: spaces.Box, init_log_std: float) -> None:
        super().__init__(features, space, init_log_std)
        self.log_std = torch.nn.Parameter(torch.full((features, self.actions), float(init_log_std)))
        self.noise_size = (features + 1) * self.actions

    def forward(self, features: Tensor) -> Tensor:
        mean = self.mean(features)
        if self.mean_bound is not None:
            mean = mean.clamp(-self.mean_bound, self.mean_bound)
        seen = features if self.learns_features else features.detach()
        variance = seen.square() @ torch.exp(2.0 * self.log_std) + _CONSTANT_STD**2
        return torch.cat([mean, 0.5 * variance.log(), seen], dim=1)

    def moments(self, parameters: Tensor) -> tuple[Tensor, Tensor]:
        return parameters[:, : self.actions], parameters[:, self.actions : 2 * self.actions]

    def sample(self, parameters: Tensor, noise: Tensor) -> Tensor:
        seen, matrix = parameters[:, 2 * self.actions :], noise.unflatten(1, (-1, self.actions))
        explored = torch.einsum("nf,nfa->na", seen, self.log_std.exp() * matrix[:, :-1])
        return self.moments(parameters)[0] + explored + _CONSTANT_STD * matrix[:, -1]


class SquashedStateDependentNoiseHead(StateDependentNoiseHead, SquashedGaussianHead):
    """The same before a tanh."""


class SoftStateDependentNoiseHead(SquashedStateDependentNoiseHead):
    """Explore in soft actor-critic: features learn from the noise too, and means stay where the tanh has a slope."""

    learns_features = True
    mean_bound = 2.0

    def __init__(self, features: int, space: spaces.Box, init_log_std: float) -> None:
        super().__init__(features, space, init_log_std)
        self.mean = torch.nn.Linear(features, self.actions)


def state_dependent_head(
    features: int, space: spaces.Space, distribution: Distribution, init_log_std: float
) -> StateDependentNoiseHead:
    """Build the head of an on-policy actor; raise SpaceError for other actions or distributions than normal ones."""
    if not isinstance(space, spaces.Box) or distribution not in ("auto", "gaussian", "squashed_gaussian"):
        raise SpaceError(
            "policy.use_sde needs continuous actions (a Box) and policy.distribution: gaussian or squashed_gaussian, "
            f"not {distribution} over {space}"
        )
    kind = SquashedStateDependentNoiseHead if distribution == "squashed_gaussian" else StateDependentNoiseHead
    return kind(features, space, init_log_std)
