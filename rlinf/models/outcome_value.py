"""A value function of outcomes: a distribution over returns in [-1, 0], read off any observation."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from gymnasium import spaces
from torch import Tensor, nn
from torch.nn import functional

from rlinf.models.actor_critic.encoders import ObservationEncoder
from rlinf.models.actor_critic.options import ActorCriticOptions
from rlinf.models.off_policy.layers import body

TASK_INDEX = "task_index"
"""Leaf that numbers the instructions."""
_TASK = 16  # numbers that tell an instruction


class OutcomeValue(nn.Module):
    """Cross-entropy over ``bins`` returns, evenly from -1 to 0, as in pi*0.6 (arXiv:2511.14759); V is their mean."""

    returns: Tensor

    def __init__(self, space: spaces.Space, tasks: int = 1, *, hidden: int = 128, bins: int = 51) -> None:
        """``space``: of observations, whose texts are not read; ``tasks``: how many instructions there are instead."""
        super().__init__()
        if isinstance(space, spaces.Dict):
            space = spaces.Dict({name: part for name, part in space.items() if not isinstance(part, spaces.Text)})
        self.encoder = ObservationEncoder(space, ActorCriticOptions())
        self.task = nn.Embedding(tasks, _TASK) if tasks > 1 else None
        width = self.encoder.out_features + (_TASK if tasks > 1 else 0)
        self.layers = nn.Sequential(*body(width, (hidden, hidden), "relu"), nn.Linear(hidden, bins))
        self.register_buffer("returns", torch.linspace(-1.0, 0.0, bins))

    def forward(self, leaves: Mapping[str, Tensor]) -> Tensor:
        """Logits [N, bins] for observations [N, ...], with ``task_index`` [N] among them if there are several tasks."""
        features = self.encoder(leaves)
        if self.task is not None:
            features = torch.cat([features, self.task(leaves[TASK_INDEX].long())], dim=1)
        logits: Tensor = self.layers(features)
        return logits

    def loss(self, leaves: Mapping[str, Tensor], returns: Tensor) -> Tensor:
        """Compute the cross-entropy with ``returns`` [N], each shared by its two neighbouring bins, in nats."""
        return functional.cross_entropy(self(leaves), shared_bins(returns, len(self.returns)))

    def values(self, leaves: Mapping[str, Tensor]) -> Tensor:
        """Compute the expected returns [N]."""
        return self(leaves).softmax(-1) @ self.returns


def shared_bins(returns: Tensor, bins: int) -> Tensor:
    """Return probabilities [N, bins] of evenly spaced bins over [-1, 0] whose means are ``returns`` [N].

    >>> shared_bins(torch.tensor([-0.625, 0.0]), 5).tolist()
    [[0.0, 0.5, 0.5, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0, 1.0]]
    """
    position = (returns.clamp(-1.0, 0.0) + 1.0) * (bins - 1)
    lower = position.floor().clamp(max=bins - 2)
    above = position - lower
    table = torch.zeros(len(returns), bins)
    rows, first = torch.arange(len(returns)), lower.long()
    table[rows, first] = 1.0 - above
    table[rows, first + 1] = above
    return table
