"""Action distributions as heads: features to parameters, and sampling, log-probability and entropy of those parameters.

Sampling is a function of noise that the caller draws (``noise_kind``, ``noise_size`` numbers per decision). So the
caller decides which stream a decision draws from, and the result does not depend on who else is in the batch.

Actions are in the head's own units: indices for categories, the unsquashed number for squashed Gaussians, [0, 1] for
beta. :meth:`ActionHead.to_env` turns them into what the environment takes. N rows, A numbers per action.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn
from torch.nn import functional

from rlinf.data.spaces import ACTION_MASK, SpaceError, coded_categories, require_actions, share_of_bounds
from rlinf.models.actor_critic.layers import orthogonal
from rlinf.models.actor_critic.options import Distribution
from rlinf.models.own import is_own, make_own
from rlinf.models.own_contract import require_head

NoiseKind = Literal["uniform", "normal"]
ILLEGAL = -1e9
"""Logit or value of an illegal action: its probability is exactly 0, and all that is computed of it stays finite."""
_POLICY_GAIN = 0.01  # a near-uniform first policy
_EDGE = 0.01  # share of the bounds that demonstrated actions are kept away from them
_BOUNDS = "bound them by a wrapper (env.wrappers), or choose policy.distribution: gaussian with PPO or GRPO"
LOG_SQRT_2PI = 0.5 * math.log(2 * math.pi)
"""Of the density of a normal number."""


class ActionHead(nn.Module):
    """One distribution family. ``forward``: features [N, F] to parameters [N, ...]; log-probs, entropies: [N, A]."""

    noise_kind: NoiseKind
    noise_size: int
    action_shape: tuple[int, ...]
    action_dtype: type[np.generic] = np.float32

    @property
    def draw_size(self) -> int:
        """Standard normal numbers of a draw in an update, where the noise of one decision is that of no other."""
        return self.noise_size

    def sample(self, parameters: Tensor, noise: Tensor) -> Tensor:
        """Actions [N, *action_shape] from noise [N, noise_size]."""
        raise NotImplementedError

    def mode(self, parameters: Tensor) -> Tensor:
        """Return the most likely (or central) actions [N, *action_shape]."""
        raise NotImplementedError

    def log_prob(self, parameters: Tensor, actions: Tensor) -> Tensor:
        """Log-probability of each number of each action [N, A]; a row's log-probability is the sum."""
        raise NotImplementedError

    def entropy(self, parameters: Tensor) -> Tensor:
        """Entropy of each number [N, A]."""
        raise NotImplementedError

    def to_env(self, actions: np.ndarray) -> np.ndarray:
        """Actions as the environment takes them, [N, *space.shape]."""
        raise NotImplementedError

    def from_env(self, actions: np.ndarray) -> np.ndarray:
        """Return the actions [N, *action_shape] that :meth:`to_env` would turn into these, as nearly as possible."""
        raise NotImplementedError


class CategoricalHead(ActionHead):
    """Discrete, MultiDiscrete and MultiBinary actions: A independent categories, logits end to end."""

    noise_kind = "uniform"
    action_dtype = np.int64

    def __init__(self, features: int, space: spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary) -> None:
        super().__init__()
        sizes, starts = coded_categories(space)
        self.sizes: list[int] = sizes.tolist()
        self.starts = starts
        self.space = space
        self.scalar = isinstance(space, spaces.Discrete)
        self.action_shape = () if self.scalar else (len(self.sizes),)
        self.noise_size = int(sizes.sum())
        self.logits = orthogonal(nn.Linear(features, self.noise_size), _POLICY_GAIN)

    def forward(self, features: Tensor) -> Tensor:
        return self.logits(features)

    def sample(self, parameters: Tensor, noise: Tensor) -> Tensor:
        # Gumbel-max: the largest of logit + gumbel noise is a draw from the softmax.
        return self.mode(parameters - torch.log(-torch.log(noise.clamp(1e-12, 1 - 1e-7))))

    def mode(self, parameters: Tensor) -> Tensor:
        if self.scalar:
            return parameters.argmax(-1)
        return torch.stack([part.argmax(-1) for part in parameters.split(self.sizes, dim=-1)], dim=-1)

    def log_prob(self, parameters: Tensor, actions: Tensor) -> Tensor:
        index = actions.long().reshape(len(actions), len(self.sizes))
        if self.scalar:  # cutting and joining one part is as much work as the rest
            return parameters.log_softmax(-1).gather(-1, index)
        parts = parameters.split(self.sizes, dim=-1)
        picked = [part.log_softmax(-1).gather(-1, index[:, i : i + 1]) for i, part in enumerate(parts)]
        return torch.cat(picked, dim=-1)

    def entropy(self, parameters: Tensor) -> Tensor:
        terms = []
        for part in parameters.split(self.sizes, dim=-1):
            logs = part.log_softmax(-1)
            terms.append(-(logs.exp() * logs).sum(-1))
        return torch.stack(terms, dim=-1)

    def to_env(self, actions: np.ndarray) -> np.ndarray:
        if self.scalar:
            return actions + self.starts[0]
        return (actions + self.starts).reshape(-1, *(self.space.shape or ())).astype(self.space.dtype)

    def from_env(self, actions: np.ndarray) -> np.ndarray:
        flat = np.asarray(actions, dtype=np.int64).reshape(len(actions), -1) - self.starts
        return flat[:, 0] if self.scalar else flat


def mask_illegal(logits: Tensor, legal: Tensor) -> Tensor:
    """Return logits (or values) [N, n] with :data:`ILLEGAL` where ``legal`` [N, n] is 0.

    >>> mask_illegal(torch.zeros(1, 3), torch.tensor([[1, 0, 1]])).softmax(-1)
    tensor([[0.5000, 0.0000, 0.5000]])
    """
    return torch.where(legal.reshape(logits.shape) != 0, logits, ILLEGAL)


def only_legal(parameters: Tensor, observations: Mapping[str, Tensor], action_mask: str | None) -> Tensor:
    """Return parameters [N, n] without illegal actions at observations [N, ...]; as they are if nothing is masked.

    ``action_mask``: that of the policy's options.
    """
    return parameters if action_mask is None else mask_illegal(parameters, observations[ACTION_MASK])


class BoxHead(ActionHead):
    """The common part of heads for Box actions: bounds and shape."""

    def __init__(self, space: spaces.Box) -> None:
        super().__init__()
        if 0 in space.shape:
            raise SpaceError(f"the action space {space} has no numbers: there is nothing to choose")
        self.space = space
        self.low, self.high = space.low.reshape(-1).astype(np.float64), space.high.reshape(-1).astype(np.float64)
        self.action_shape = (int(np.prod(space.shape)),)

    def require_finite_bounds(self, needs: str, fix: str) -> None:
        """Raise SpaceError, a sentence from ``needs`` to ``fix``, if an action has no bound."""
        if not np.isfinite(self.low).all() or not np.isfinite(self.high).all():
            raise SpaceError(f"{needs} finite action bounds, got {self.space}: {fix}")

    def _shaped(self, flat: np.ndarray) -> np.ndarray:
        # Of whole numbers the nearest: cutting would make the upper bound an action that is never taken.
        numbers = np.rint(flat) if self.space.dtype.kind in "iu" else flat
        return numbers.reshape(-1, *self.space.shape).astype(self.space.dtype)

    def _from_unit(self, unit: np.ndarray) -> np.ndarray:
        """[0, 1] to [low, high]."""
        return self._shaped(self.low + unit * (self.high - self.low))

    def _to_unit(self, actions: np.ndarray) -> np.ndarray:
        """[low, high] to [0, 1], a little inside: a demonstrator at the bounds has no finite log-probability there."""
        flat = np.asarray(actions, dtype=np.float64).reshape(len(actions), -1)
        return np.clip(share_of_bounds(flat, self.low, self.high), _EDGE, 1.0 - _EDGE)


class GaussianHead(BoxHead):
    """Independent normals with a state-free standard deviation; the environment gets the clipped action."""

    noise_kind = "normal"

    def __init__(self, features: int, space: spaces.Box, init_log_std: float) -> None:
        super().__init__(space)
        (self.actions,) = self.action_shape
        self.noise_size = self.actions
        self.mean = orthogonal(nn.Linear(features, self.actions), _POLICY_GAIN)
        self.log_std = nn.Parameter(torch.full((self.actions,), float(init_log_std)))

    def forward(self, features: Tensor) -> Tensor:
        mean = self.mean(features)
        return torch.stack([mean, self.log_std.expand_as(mean)], dim=1)  # [N, 2, A]

    @property
    def draw_size(self) -> int:
        return self.actions

    def moments(self, parameters: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and logarithm of the standard deviation [N, A]."""
        mean, log_std = parameters.unbind(1)
        return mean, log_std

    def sample(self, parameters: Tensor, noise: Tensor) -> Tensor:
        mean, log_std = self.moments(parameters)
        return mean + log_std.exp() * noise

    def mode(self, parameters: Tensor) -> Tensor:
        return self.moments(parameters)[0]

    def log_prob(self, parameters: Tensor, actions: Tensor) -> Tensor:
        mean, log_std = self.moments(parameters)
        return -0.5 * ((actions - mean) * torch.exp(-log_std)).square() - log_std - LOG_SQRT_2PI

    def entropy(self, parameters: Tensor) -> Tensor:
        return self.moments(parameters)[1] + 0.5 + LOG_SQRT_2PI

    def to_env(self, actions: np.ndarray) -> np.ndarray:
        return self._shaped(np.clip(actions, self.low, self.high))

    def from_env(self, actions: np.ndarray) -> np.ndarray:
        return np.asarray(actions, dtype=np.float32).reshape(len(actions), -1)


class SquashedGaussianHead(GaussianHead):
    """tanh of a normal, stretched to the bounds. Actions are kept before the tanh: the density is exact at the edges.

    Densities are those of tanh(u) on [-1, 1]; stretching to the bounds would only add a constant.
    """

    def __init__(self, features: int, space: spaces.Box, init_log_std: float) -> None:
        super().__init__(features, space, init_log_std)
        self.require_finite_bounds("a squashed Gaussian needs", _BOUNDS)
        nodes, weights = np.polynomial.hermite_e.hermegauss(16)
        self.register_buffer("nodes", torch.as_tensor(nodes, dtype=torch.float32), persistent=False)
        self.register_buffer("weights", torch.as_tensor(weights / weights.sum(), dtype=torch.float32), persistent=False)

    nodes: Tensor
    weights: Tensor

    def log_prob(self, parameters: Tensor, actions: Tensor) -> Tensor:
        return super().log_prob(parameters, actions) - log_tanh_slope(actions)

    def draw(self, parameters: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Return a sample [N, A] and its log-probability from noise [N, draw_size].

        It is cheaper than two calls: the distance to the mean is the noise."""
        mean, log_std = self.moments(parameters)
        actions = mean + log_std.exp() * noise
        return actions, -0.5 * noise.square() - log_std - LOG_SQRT_2PI - log_tanh_slope(actions)

    def entropy(self, parameters: Tensor) -> Tensor:
        # H[tanh u] = H[u] + E log(1 - tanh(u)^2); the expectation by Gauss-Hermite quadrature, exact enough and smooth.
        mean, log_std = self.moments(parameters)
        points = mean[..., None] + log_std.exp()[..., None] * self.nodes
        return super().entropy(parameters) + (log_tanh_slope(points) * self.weights).sum(-1)

    def to_env(self, actions: np.ndarray) -> np.ndarray:
        return self._from_unit(0.5 * (np.tanh(actions) + 1.0))

    def from_env(self, actions: np.ndarray) -> np.ndarray:
        return np.arctanh(2.0 * self._to_unit(actions) - 1.0).astype(np.float32)


class BetaHead(BoxHead):
    """Beta(alpha, beta) with both above 1 (one mode), on [0, 1] stretched to the bounds: no mass outside them."""

    noise_kind = "uniform"
    _ROUNDS = 6  # each accepts over 95%: all fail once in 10^8

    def __init__(self, features: int, space: spaces.Box) -> None:
        super().__init__(space)
        self.require_finite_bounds("a beta distribution needs", _BOUNDS)
        (size,) = self.action_shape
        self.noise_size = size * 2 * self._ROUNDS * 2
        self.shape = orthogonal(nn.Linear(features, 2 * size), _POLICY_GAIN)

    def forward(self, features: Tensor) -> Tensor:
        return 1.0 + functional.softplus(self.shape(features)).unflatten(1, (2, -1))  # [N, 2, A]

    def sample(self, parameters: Tensor, noise: Tensor) -> Tensor:
        draws = noise.clamp(1e-7, 1 - 1e-7).unflatten(1, (2, self._ROUNDS, 2, *self.action_shape))
        gammas = self._gamma(parameters, draws)
        return (gammas[:, 0] / gammas.sum(1)).clamp(1e-6, 1 - 1e-6)

    def _gamma(self, shape: Tensor, draws: Tensor) -> Tensor:
        """Marsaglia and Tsang's method with a fixed number of rounds, the first accepted one counts: [N, 2, A]."""
        offset = (shape - 1.0 / 3.0)[:, :, None]
        normal = math.sqrt(2.0) * torch.erfinv(2.0 * draws[:, :, :, 0] - 1.0)
        cube = (1.0 + normal / torch.sqrt(9.0 * offset)).pow(3)
        inside = cube > 0
        safe = torch.where(inside, cube, 1.0)
        bound = 0.5 * normal.square() + offset - offset * safe + offset * safe.log()
        accepted = inside & (draws[:, :, :, 1].log() < bound)
        first = accepted.to(torch.int8).argmax(dim=2, keepdim=True)
        return (offset * safe).gather(2, first)[:, :, 0]

    def mode(self, parameters: Tensor) -> Tensor:
        alpha, beta = parameters.unbind(1)
        return alpha / (alpha + beta)

    def log_prob(self, parameters: Tensor, actions: Tensor) -> Tensor:
        alpha, beta = parameters.unbind(1)
        return torch.distributions.Beta(alpha, beta, validate_args=False).log_prob(actions)

    def entropy(self, parameters: Tensor) -> Tensor:
        alpha, beta = parameters.unbind(1)
        return torch.distributions.Beta(alpha, beta, validate_args=False).entropy()

    def to_env(self, actions: np.ndarray) -> np.ndarray:
        return self._from_unit(actions)

    def from_env(self, actions: np.ndarray) -> np.ndarray:
        return self._to_unit(actions).astype(np.float32)


def log_tanh_slope(values: Tensor) -> Tensor:
    """log(1 - tanh(x)^2), without the cancellation that the literal formula has for |x| > 8."""
    return 2.0 * (math.log(2.0) - values - functional.softplus(-2.0 * values))


def action_head(
    features: int,
    space: spaces.Space,
    distribution: Distribution,
    init_log_std: float,
    own_options: Mapping[str, object] | None = None,
) -> ActionHead:
    """Build the head for an action space; raise SpaceError, which names one that fits, for a wrong distribution.

    A distribution of one's own is made by (features, space) and ``own_options``.
    """
    if is_own(distribution):
        head: ActionHead = make_own("policy.distribution", distribution, own_options or {}, features, space)
        require_head(distribution, head, features, space)
        return head
    require_actions(space)
    if isinstance(space, (spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)):
        if distribution not in ("auto", "categorical"):
            raise SpaceError(f"policy.distribution {distribution!r} does not fit {space}: it wants 'categorical'")
        return CategoricalHead(features, space)
    assert isinstance(space, spaces.Box)
    if distribution in ("auto", "gaussian"):
        return GaussianHead(features, space, init_log_std)
    if distribution == "squashed_gaussian":
        return SquashedGaussianHead(features, space, init_log_std)
    if distribution == "beta":
        return BetaHead(features, space)
    raise SpaceError(
        f"policy.distribution {distribution!r} does not fit {space}: gaussian, squashed_gaussian or beta do"
    )
