"""What one slot is when an action is a chunk: [B, C chunks, K actions, D dimensions] -> [B, T].

``chunk_level``: one slot a chunk (T = C); ``action_level``: one an action (T = C K); ``token_level``: one a dimension
of an action (T = C K D). A mask is refined together with what it covers, so a mean is always over the real slots of
its own level.
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
class Granularity:
    """The levels of rewards (and advantages), log-probabilities (and the loss), and entropy; K actions of D dimensions.

    A reward finer than the log-probability it is to be credited to, or an unknown level, is a ValueError.
    """

    actions: int
    """K"""
    dimensions: int
    """D"""
    reward_type: Level = "chunk_level"
    logprob_type: Level = "chunk_level"
    entropy_type: Level = "chunk_level"

    def __post_init__(self) -> None:
        for name in ("reward_type", "logprob_type", "entropy_type"):
            allowed = LEVELS[:2] if name == "reward_type" else LEVELS
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} must be one of {', '.join(allowed)}, got {getattr(self, name)!r}")
        if LEVELS.index(self.reward_type) > LEVELS.index(self.logprob_type):
            raise ValueError(
                f"reward_type {self.reward_type} is finer than logprob_type {self.logprob_type}: "
                "an advantage has no slot to go to"
            )

    def rewards(self, rewards: Tensor, mask: Tensor) -> Tensor:
        """[B, C, K] -> [B, T] of ``reward_type``: summed over the acted actions of a slot; ``mask`` [B, C, K].

        >>> Granularity(2, 7).rewards(torch.tensor([[[1., 2.], [3., 9.]]]), torch.tensor([[[True, True], [True,
        ...     False]]]))
        tensor([[3., 3.]])
        """
        return self._sum(rewards[..., None], mask, self.reward_type)

    def logprobs(self, logprobs: Tensor, mask: Tensor) -> Tensor:
        """[B, C, K, D] -> [B, T] of ``logprob_type``: those of independent parts of a slot add up; ``mask`` [B, C, K].

        >>> Granularity(2, 2, logprob_type="action_level").logprobs(torch.tensor([[[[1., 2.], [3., 4.]]]]),
        ...     torch.ones(1, 1, 2).bool())
        tensor([[3., 7.]])
        """
        return self._sum(logprobs, mask, self.logprob_type)

    def entropy(self, entropy: Tensor, mask: Tensor) -> Tensor:
        """[B, C, K, D] -> [B, T] of ``logprob_type``, summed to ``entropy_type``, then spread or averaged.

        >>> g = Granularity(1, 2, logprob_type="token_level", entropy_type="action_level")
        >>> g.entropy(torch.tensor([[[[1., 2.]]]]), torch.ones(1, 1, 1).bool())
        tensor([[3., 3.]])
        """
        summed = self._sum(entropy, mask, self.entropy_type)
        if LEVELS.index(self.entropy_type) <= LEVELS.index(self.logprob_type):
            return self._refine(summed, self.entropy_type)
        real = self._mask(mask, self.entropy_type)
        parts = real.view(*self.mask(mask).shape, -1)
        return (summed.view_as(parts) * parts).sum(dim=-1) / parts.sum(dim=-1).clamp(min=1)

    def mask(self, mask: Tensor) -> Tensor:
        """[B, C, K] (the actions carried out) -> the slots of the loss [B, T]; a chunk is real if an action is.

        >>> Granularity(2, 2, logprob_type="token_level").mask(torch.tensor([[[True, False]]]))
        tensor([[ True,  True, False, False]])
        """
        return self._mask(mask, self.logprob_type)

    def reward_mask(self, mask: Tensor) -> Tensor:
        """[B, C, K] -> the slots of the rewards [B, T]."""
        return self._mask(mask, self.reward_type)

    def flags(self, flags: Tensor, mask: Tensor) -> Tensor:
        """``terminated`` or ``truncated`` [B, C, K] -> slots of rewards [B, T]: true if a real action has it."""
        return self._mask(flags & mask, self.reward_type)

    def advantages(self, advantages: Tensor) -> Tensor:
        """[B, T] of ``reward_type`` -> [B, T] of ``logprob_type``: a coarser advantage is that of all its parts.

        >>> Granularity(1, 3, logprob_type="token_level").advantages(torch.tensor([[5., 6.]]))
        tensor([[5., 5., 5., 6., 6., 6.]])
        """
        return self._refine(advantages, self.reward_type)

    def _slots(self, level: Level) -> int:
        """How many slots of ``level`` a chunk has."""
        return {"chunk_level": 1, "action_level": self.actions, "token_level": self.actions * self.dimensions}[level]

    def _sum(self, parts: Tensor, mask: Tensor, level: Level) -> Tensor:
        real = torch.where(mask[..., None], parts, 0.0)
        if level == "chunk_level":
            return real.sum(dim=(2, 3))
        return real.sum(dim=3).flatten(1) if level == "action_level" else real.flatten(1)

    def _mask(self, mask: Tensor, level: Level) -> Tensor:
        if level == "chunk_level":
            return mask.any(dim=2)
        actions = mask.flatten(1)
        return actions if level == "action_level" else actions.repeat_interleave(self.dimensions, dim=1)

    def _refine(self, column: Tensor, level: Level) -> Tensor:
        return column.repeat_interleave(self._slots(self.logprob_type) // self._slots(level), dim=1)
