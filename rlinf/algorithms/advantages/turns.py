"""Turns of a row: the position at which each begins, what follows from it, and how it compares with others."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from rlinf.algorithms.advantages.estimate import AdvantageInputs
from rlinf.algorithms.scan import discounted_sum, episode_ends, shift_back
from rlinf.algorithms.statistics import EPS, group_statistics


@dataclass(frozen=True)
class Turns:
    """The positions at which the turns of some rows begin, and what they earned."""

    begins: Tensor
    """bool [B, T]: the first position of each turn."""
    anchors: Tensor
    """int64 [B, T]: which state a turn starts from, where one begins."""
    returns: Tensor
    """float64 [B, T]: the reward-to-go of each position, discounted from turn to turn."""

    @classmethod
    def of(cls, x: AdvantageInputs, *, adv_type: str, gamma: float) -> Turns:
        """Find the turns of rows.

        A turn begins in a valid position whose ``anchor_ids`` is 0 or more, and goes on through those with -1."""
        if x.anchor_ids is None:
            raise ValueError(f"adv_type {adv_type} needs anchor_ids [B, T]: the state that each step starts from")
        begins = x.mask & (x.anchor_ids >= 0)
        ends = episode_ends(x.mask, x.terminated, x.truncated)
        turn_follows = shift_back(begins.double(), x.mask) > 0
        decay = torch.where(ends, 0.0, torch.where(turn_follows, gamma, 1.0)).double()
        return cls(begins, x.anchor_ids, discounted_sum(x.rewards, x.mask, decay))

    @property
    def numbers(self) -> Tensor:
        """int64 [B, T]: how many turns of the row have begun at each position."""
        return self.begins.long().cumsum(dim=1)

    def compared(self, x: AdvantageInputs, kinds: Tensor, *, std_ddof: int, normalize_by_std: bool) -> Tensor:
        """Compare each turn's return with those of the same kind in its group, at every position of the turn: [B, T].

        ``kinds`` [B, T] int64, read where a turn begins. A turn that is alone gets 0, and so does what comes before
        the first turn.
        """
        returns = self.returns[self.begins]
        ids = _pairs(x.group_ids[:, None].expand_as(x.mask)[self.begins], kinds[self.begins])
        peers = group_statistics(returns, ids, ddof=std_ddof)
        centred = returns - peers.mean
        turns = torch.zeros_like(self.returns)
        turns[self.begins] = centred / (peers.std + EPS) if normalize_by_std else centred
        position = torch.arange(x.mask.shape[1], device=x.mask.device)
        first = torch.where(self.begins, position, 0).cummax(dim=1).values
        return torch.where(self.numbers > 0, turns.gather(1, first), 0.0) * x.mask


def _pairs(first: Tensor, second: Tensor) -> Tensor:
    """One id [N] for every distinct pair."""
    one, two = (torch.unique(part) for part in (first, second))
    return torch.searchsorted(one, first) * len(two) + torch.searchsorted(two, second)
