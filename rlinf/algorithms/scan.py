"""Sums backward over the valid positions of a row, cut at episode ends; what a false mask covers is skipped."""

from __future__ import annotations

import torch
from torch import Tensor


def _next_true(mask: Tensor) -> Tensor:
    """Find the index of the next valid position after each position, [B, T] int64; T if there is none.

    >>> _next_true(torch.tensor([[True, False, True]]))
    tensor([[2, 2, 3]])
    """
    positions = mask.shape[1]
    position = torch.arange(positions, device=mask.device).expand_as(mask)
    here_or_later = torch.where(mask, position, positions).flip(1).cummin(dim=1).values.flip(1)
    return torch.cat([here_or_later[:, 1:], here_or_later.new_full((mask.shape[0], 1), positions)], dim=1)


def last_true(mask: Tensor) -> Tensor:
    """bool [B, T]: the last valid token of each row.

    >>> last_true(torch.tensor([[True, True, False]]))
    tensor([[False,  True, False]])
    """
    return mask & (_next_true(mask) == mask.shape[1])


def shift_back(values: Tensor, mask: Tensor, fill: float = 0.0) -> Tensor:
    """Return the value at the next valid position, [B, T]; ``fill`` if there is none.

    >>> shift_back(torch.tensor([[1., 9., 3.]]), torch.tensor([[True, False, True]]))
    tensor([[3., 3., 0.]])
    """
    padded = torch.cat([values, values.new_full((values.shape[0], 1), fill)], dim=1)
    return padded.gather(1, _next_true(mask))


def discounted_sum(values: Tensor, mask: Tensor, decay: Tensor) -> Tensor:
    """``s_t = x_t + decay_t s_next`` over the valid positions, [B, T]; ``decay`` [B, T] is 0 where an episode ends.

    >>> discounted_sum(torch.tensor([[1., 9., 2.]]), torch.tensor([[True, False, True]]), torch.full((1, 3), .5))
    tensor([[2., 0., 2.]])
    """
    # Positions first: each step of the loop then reads and writes memory that lies together.
    by_position, valid, factors = (column.t().contiguous() for column in (values, mask, decay))
    sums = torch.zeros_like(by_position)
    carried = values.new_zeros(values.shape[0])
    every = [column.unbind() for column in (by_position, valid, factors, sums)]
    for value, true, factor, result in zip(*map(reversed, every), strict=True):
        carried = torch.where(true, value + factor * carried, carried)
        result.copy_(carried)
    return torch.where(mask, sums.t().contiguous(), 0.0)


def episode_ends(mask: Tensor, terminated: Tensor | None, truncated: Tensor | None) -> Tensor:
    """bool [B, T]: the valid timesteps in which an episode ends by a flag (a row's last one ends anyway).

    >>> episode_ends(torch.tensor([[True, True]]), torch.tensor([[True, False]]), None)
    tensor([[ True, False]])
    """
    ends = torch.zeros_like(mask)
    for flag in (terminated, truncated):
        if flag is not None:
            ends = ends | flag
    return ends & mask
