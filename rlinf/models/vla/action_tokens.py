"""Discretised actions: every number of every action of a chunk is a token of its own, drawn from a softmax.

N rows, Q = K x A tokens per decision, V values per token.
"""

from __future__ import annotations

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from rlinf.models.actor_critic.encoders import category_sizes
from rlinf.models.actor_critic.layers import orthogonal
from rlinf.spaces import SpaceError

_FIRST_GAIN = 0.01  # a near-uniform first policy


class ActionTokens(nn.Module):
    """Hidden states [N, Q, H] at the action queries to logits [N, Q, V], and from tokens to actions and back."""

    noise_kind = "uniform"
    action_dtype: type[np.generic] = np.int64
    imitation_noise = 0
    forbidden: Tensor

    def __init__(self, width: int, space: spaces.Space, *, bins: int, chunk: int, temperature: float) -> None:
        super().__init__()
        self._space, self._chunk, self._temperature = space, chunk, temperature
        self._box = isinstance(space, spaces.Box)
        if isinstance(space, spaces.Box):
            if not (np.isfinite(space.low).all() and np.isfinite(space.high).all()):
                raise SpaceError(f"discretised actions need finite bounds, got {space}; scale them with a wrapper")
            self._low = space.low.reshape(-1).astype(np.float64)
            self._step = (space.high.reshape(-1).astype(np.float64) - self._low) / (bins - 1)
            sizes = np.full(len(self._low), bins)
        elif isinstance(space, (spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)):
            sizes, self._starts = category_sizes(space)
        else:
            raise SpaceError(f"no action tokens for actions of type {type(space).__name__} ({space})")
        self.per_action = len(sizes)
        self.count = self.per_action * chunk
        self.noise_size = self.count
        self.action_shape: tuple[int, ...] = (self.count,)
        values = int(sizes.max())
        # Where dimensions differ in size, the tokens that a smaller one does not have can't be drawn.
        forbidden = np.tile(np.arange(values)[None, :] >= sizes[:, None], (chunk, 1))
        self.register_buffer("forbidden", torch.from_numpy(forbidden), persistent=False)
        self.logits = orthogonal(nn.Linear(width, values), _FIRST_GAIN)

    def forward(self, hidden: Tensor) -> Tensor:
        logits = self.logits(hidden).float() / self._temperature
        return logits.masked_fill(self.forbidden, float("-inf")) if bool(self.forbidden.any()) else logits

    def sample(self, logits: Tensor, noise: Tensor) -> Tensor:
        """Tokens [N, Q] where the cumulative distribution crosses ``noise`` [N, Q], uniform on [0, 1)."""
        weights = logits.softmax(-1, dtype=torch.float64).cumsum(-1)
        # Just below the sum, which rounding may keep from 1: the token found always has a weight above zero.
        target = torch.minimum(noise.double() * weights[..., -1], torch.nextafter(weights[..., -1], -weights[..., -1]))
        return torch.searchsorted(weights, target[..., None], right=True)[..., 0]

    def mode(self, logits: Tensor) -> Tensor:
        """The most likely tokens [N, Q]."""
        return logits.argmax(-1)

    def log_prob(self, logits: Tensor, tokens: Tensor) -> Tensor:
        """Log-probability of each token [N, Q]."""
        return logits.log_softmax(-1).gather(-1, tokens[..., None])[..., 0]

    def entropy(self, logits: Tensor) -> Tensor:
        """Entropy of each token's distribution [N, Q]."""
        logs = logits.log_softmax(-1)
        return -torch.where(self.forbidden, 0.0, logs.exp() * logs).sum(-1)

    def to_env(self, tokens: np.ndarray) -> np.ndarray:
        """Tokens [N, Q] as actions [N, *shape], with chunks [N, K, *shape]."""
        parts = tokens.reshape(len(tokens), self._chunk, self.per_action)
        numbers = self._low + parts * self._step if self._box else parts + self._starts
        lead = (len(tokens),) if self._chunk == 1 else (len(tokens), self._chunk)
        return numbers.reshape(*lead, *(self._space.shape or ())).astype(self._space.dtype)

    def from_env(self, actions: np.ndarray) -> np.ndarray:
        """The nearest tokens [N, Q] of actions [N, *shape] or [N, K, *shape]."""
        parts = np.asarray(actions, dtype=np.float64).reshape(len(actions), self._chunk, self.per_action)
        if self._box:
            parts = np.clip((parts - self._low) / self._step, 0, len(self.forbidden[0]) - 1)
        else:
            parts = parts - self._starts
        return np.rint(parts).astype(np.int64).reshape(len(actions), self.count)
