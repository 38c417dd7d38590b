"""The granularity of positions if an action is a chunk: [B, C chunks, K actions, D dimensions] -> [B, T].

``chunk_level``: one position a chunk (T = C); ``action_level``: one an action (T = C K); ``token_level``: one
a dimension of an action (T = C K D). A mask is refined together with what it covers, so a mean is always over
the real positions of its own level.

Policies report at these levels, and rollouts lay their columns out by them. The batch holds how many
positions a decision and a reward have (``Batch.positions_per_decision``, ``Batch.positions_per_reward``). No
other code depends on what a position is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

Level = Literal["chunk_level", "action_level", "token_level"]

LEVELS: tuple[Level, ...] = ("chunk_level", "action_level", "token_level")
"""From coarse to fine."""


@dataclass(frozen=True)
class Levels:
    """The levels of rewards (with values and advantages), log-probabilities (and the loss), and entropy.

    A level that does not exist is a ValueError.
    """

    reward_type: Level = "chunk_level"
    logprob_type: Level = "chunk_level"
    entropy_type: Level = "chunk_level"

    def __post_init__(self) -> None:
        for name in ("reward_type", "logprob_type", "entropy_type"):
            allowed = LEVELS[:2] if name == "reward_type" else LEVELS
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} must be one of {', '.join(allowed)}, got {getattr(self, name)!r}")


@dataclass(frozen=True)
class Granularity(Levels):
    """Levels for chunks of K actions of D dimensions; `Granularity.of(levels, actions=K, dimensions=D)` makes one.

    A reward with more positions in a chunk than the log-probability it is to be credited to is a ValueError.
    """

    actions: int = 1
    """K"""
    dimensions: int = 1
    """D"""

    @classmethod
    def of(cls, levels: Levels, *, actions: int, dimensions: int) -> Granularity:
        return cls(levels.reward_type, levels.logprob_type, levels.entropy_type, actions, dimensions)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self._positions_of(self.reward_type) > self._positions_of(self.logprob_type):
            raise ValueError(
                f"reward_type {self.reward_type} is finer than logprob_type {self.logprob_type}: "
                "an advantage has no position to go to"
            )

    @property
    def positions_per_decision(self) -> int:
        """Positions of the loss in a chunk."""
        return self._positions_of(self.logprob_type)

    @property
    def decision_rewards(self) -> int:
        """Positions of the rewards in a chunk; a critic has as many values to tell."""
        return self._positions_of(self.reward_type)

    @property
    def positions_per_reward(self) -> int:
        """Positions of the loss that share a reward, a value and an advantage."""
        return self.positions_per_decision // self.decision_rewards

    def rewards(self, rewards: Tensor, mask: Tensor) -> Tensor:
        """[B, C, K] -> [B, T] of ``reward_type``: summed over the acted actions of a position; ``mask`` [B, C, K].

        >>> Granularity(actions=2, dimensions=7).rewards(torch.tensor([[[1., 2.], [3., 9.]]]),
        ...     torch.tensor([[[True, True], [True, False]]]))
        tensor([[3., 3.]])
        """
        return self._sum(rewards[..., None], mask, self.reward_type)

    def logprobs(self, logprobs: Tensor, mask: Tensor | None) -> Tensor:
        """[B, C, K, D] -> [B, T] of ``logprob_type``: those of independent parts of a position add up.

        ``mask`` [B, C, K] marks which actions were carried out; None: all.

        >>> Granularity(actions=2, dimensions=2, logprob_type="action_level").logprobs(
        ...     torch.tensor([[[[1., 2.], [3., 4.]]]]), torch.ones(1, 1, 2).bool())
        tensor([[3., 7.]])
        """
        return self._sum(logprobs, mask, self.logprob_type)

    def entropy(self, entropy: Tensor, mask: Tensor | None) -> Tensor:
        """[B, C, K, D] -> [B, T] of ``logprob_type``, summed to ``entropy_type``, then spread or averaged.

        >>> g = Granularity(dimensions=2, logprob_type="token_level", entropy_type="action_level")
        >>> g.entropy(torch.tensor([[[[1., 2.]]]]), torch.ones(1, 1, 1).bool())
        tensor([[3., 3.]])
        """
        summed = self._sum(entropy, mask, self.entropy_type)
        if LEVELS.index(self.entropy_type) <= LEVELS.index(self.logprob_type):
            return self._refine(summed, self.entropy_type)
        mask = torch.ones_like(entropy[..., 0], dtype=torch.bool) if mask is None else mask
        parts = self._mask(mask, self.entropy_type).view(*self.mask(mask).shape, -1)
        return (summed.view_as(parts) * parts).sum(dim=-1) / parts.sum(dim=-1).clamp(min=1)

    def mask(self, mask: Tensor) -> Tensor:
        """[B, C, K] (the actions carried out) -> the positions of the loss [B, T]; a chunk is real if an action is.

        >>> Granularity(actions=2, dimensions=2, logprob_type="token_level").mask(torch.tensor([[[True, False]]]))
        tensor([[ True,  True, False, False]])
        """
        return self._mask(mask, self.logprob_type)

    def decisions(self, mask: Tensor) -> Tensor:
        """Positions of the loss [B, T] -> the chunks of which an action was carried out [B, C].

        >>> Granularity(dimensions=2, logprob_type="token_level").decisions(torch.tensor([[True, True, False, False]]))
        tensor([[ True, False]])
        """
        return (
            mask
            if self.positions_per_decision == 1
            else mask.unflatten(1, (-1, self.positions_per_decision)).any(dim=2)
        )

    def reward_mask(self, mask: Tensor) -> Tensor:
        """[B, C, K] -> the positions of the rewards [B, T]; of ``terminated`` and ``truncated`` too: true if an action
        has it."""
        return self._mask(mask, self.reward_type)

    def spread(self, column: Tensor) -> Tensor:
        """[B, T] of ``reward_type`` -> [B, T] of ``logprob_type``: a coarser advantage is that of all its parts.

        >>> Granularity(dimensions=3, logprob_type="token_level").spread(torch.tensor([[5., 6.]]))
        tensor([[5., 5., 5., 6., 6., 6.]])
        """
        return self._refine(column, self.reward_type)

    def first(self, column: Tensor, fill: float = 0.0) -> Tensor:
        """[B, T] of ``reward_type`` -> [B, T] of ``logprob_type``: at the first of its parts, ``fill`` at the others.

        >>> Granularity(dimensions=3, logprob_type="token_level").first(torch.tensor([[5., 6.]]))
        tensor([[5., 0., 0., 6., 0., 0.]])
        """
        placed = column.new_full((*column.shape, self.positions_per_reward), fill)
        placed[..., 0] = column
        return placed.flatten(1)

    def _positions_of(self, level: Level) -> int:
        """How many positions of ``level`` a chunk has."""
        return {"chunk_level": 1, "action_level": self.actions, "token_level": self.actions * self.dimensions}[level]

    def _sum(self, parts: Tensor, mask: Tensor | None, level: Level) -> Tensor:
        real = parts if mask is None else torch.where(mask[..., None], parts, 0.0)
        if self.actions == self.dimensions == 1:  # nothing to add up
            return real.flatten(1)
        if level == "chunk_level":
            return real.sum(dim=(2, 3))
        return real.sum(dim=3).flatten(1) if level == "action_level" else real.flatten(1)

    def _mask(self, mask: Tensor, level: Level) -> Tensor:
        if level == "chunk_level":
            return mask.any(dim=2)
        actions = mask.flatten(1)
        return actions if level == "action_level" else actions.repeat_interleave(self.dimensions, dim=1)

    def _refine(self, column: Tensor, level: Level) -> Tensor:
        times = self.positions_per_decision // self._positions_of(level)
        return column if times == 1 else column.repeat_interleave(times, dim=1)
