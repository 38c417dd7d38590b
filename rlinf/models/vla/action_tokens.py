"""Discretised actions: every number of every action of a chunk is a token of its own, drawn from a softmax.

N rows, Q = K x A tokens per decision, V values per token.
"""

from __future__ import annotations

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from rlinf.models.actor_critic.layers import orthogonal
from rlinf.models.vla.action_bins import ActionStatistics, Bins, action_bins

_FIRST_GAIN = 0.01  # a near-uniform first policy


class TokenDraws(nn.Module):
    """Tokens drawn from logits [N, Q, V], and from tokens to actions and back."""

    noise_kind = "uniform"
    action_dtype: type[np.generic] = np.int64
    imitation_noise = 0
    forbidden: Tensor

    def __init__(self, space: spaces.Space, bins: Bins, *, chunk: int, temperature: float) -> None:
        super().__init__()
        self._space, self._chunk, self._temperature, self.bins = space, chunk, temperature, bins
        self.per_action = len(self.bins.sizes)
        self.count = self.per_action * chunk
        self.noise_size = self.count
        self.action_shape: tuple[int, ...] = (self.count,)
        values = int(self.bins.sizes.max())
        # Where dimensions differ in size, the tokens that a smaller one does not have can't be drawn.
        forbidden = np.tile(np.arange(values)[None, :] >= self.bins.sizes[:, None], (chunk, 1))
        self.register_buffer("forbidden", torch.from_numpy(forbidden), persistent=False)

    def sample(self, logits: Tensor, noise: Tensor) -> Tensor:
        """Draw tokens [N, Q] where the cumulative distribution crosses ``noise`` [N, Q], uniform on [0, 1)."""
        weights = logits.softmax(-1, dtype=torch.float64).cumsum(-1)
        # Just below the sum, which rounding may keep from 1: the token found always has a weight above zero.
        target = torch.minimum(noise.double() * weights[..., -1], torch.nextafter(weights[..., -1], -weights[..., -1]))
        return torch.searchsorted(weights, target[..., None], right=True)[..., 0]

    def mode(self, logits: Tensor) -> Tensor:
        """Return the most likely tokens [N, Q]."""
        return logits.argmax(-1)

    def log_prob(self, logits: Tensor, tokens: Tensor) -> Tensor:
        """Log-probability of each token [N, Q]."""
        return logits.log_softmax(-1).gather(-1, tokens[..., None])[..., 0]

    def entropy(self, logits: Tensor) -> Tensor:
        """Entropy of each token's distribution [N, Q]."""
        logs = logits.log_softmax(-1)
        # Filled before the product, whose gradient at minus infinity would be no number.
        return -(logs.exp() * logs.masked_fill(self.forbidden, 0.0)).sum(-1)

    def to_env(self, tokens: np.ndarray) -> np.ndarray:
        """Tokens [N, Q] as actions [N, *shape], with chunks [N, K, *shape]."""
        numbers = self.bins.numbers(tokens.reshape(len(tokens), self._chunk, self.per_action))
        lead = (len(tokens),) if self._chunk == 1 else (len(tokens), self._chunk)
        return numbers.reshape(*lead, *(self._space.shape or ())).astype(self._space.dtype)

    def from_env(self, actions: np.ndarray) -> np.ndarray:
        """Return the nearest tokens [N, Q] of actions [N, *shape] or [N, K, *shape]."""
        parts = np.asarray(actions, dtype=np.float64).reshape(len(actions), self._chunk, self.per_action)
        return self.bins.tokens(parts).reshape(len(actions), self.count)


class ActionTokens(TokenDraws):
    """Hidden states [N, Q, H] at the action queries to logits [N, Q, V], and what :class:`TokenDraws` does."""

    def __init__(
        self,
        width: int,
        space: spaces.Space,
        *,
        bins: int | None,
        chunk: int,
        temperature: float,
        statistics: ActionStatistics | None = None,
    ) -> None:
        """``bins``: values that a number can take; None: OpenVLA's (`action_bins.VocabularyBins`)."""
        super().__init__(space, action_bins(space, bins, statistics), chunk=chunk, temperature=temperature)
        # A language model's output layer has no bias.
        self.logits = orthogonal(nn.Linear(width, self.forbidden.shape[1], bias=bins is not None), _FIRST_GAIN)

    def forward(self, hidden: Tensor) -> Tensor:
        logits = self.logits(hidden).float() / self._temperature
        return logits.masked_fill(self.forbidden, float("-inf")) if bool(self.forbidden.any()) else logits
