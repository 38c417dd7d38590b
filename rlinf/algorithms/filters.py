"""Which rows and groups are learned from. Every function returns bool [B], true where a row is kept."""

from __future__ import annotations

import torch
from torch import Tensor

from rlinf.algorithms.statistics import group_statistics


def dynamic_sampling(rewards: Tensor, group_ids: Tensor) -> Tensor:
    """Select the rows of groups whose rewards are not all equal (DAPO, arXiv:2503.14476, section 3.2). Both [B].

    The loop discards the other groups and samples new prompts until the batch is full or ``max_resample`` is
    reached.

    >>> dynamic_sampling(torch.tensor([1., 0., 1., 1.]), torch.tensor([0, 0, 1, 1]))
    tensor([ True,  True, False, False])
    """
    return ~group_statistics(rewards, group_ids).constant


def filter_rewards(
    rewards: Tensor,
    group_ids: Tensor,
    *,
    rewards_lower_bound: float | None = None,
    rewards_upper_bound: float | None = None,
) -> Tensor:
    """Select the rows of groups whose mean reward lies within the bounds. Both [B].

    The bounds are included; null is no bound.

    >>> filter_rewards(torch.tensor([1., 0., 1., 1.]), torch.tensor([0, 0, 1, 1]), rewards_lower_bound=0.1,
    ...     rewards_upper_bound=0.9)
    tensor([ True,  True, False, False])
    """
    mean = group_statistics(rewards, group_ids).mean
    kept = torch.ones_like(mean, dtype=torch.bool)
    if rewards_lower_bound is not None:
        kept &= mean >= rewards_lower_bound
    if rewards_upper_bound is not None:
        kept &= mean <= rewards_upper_bound
    return kept


def difficulty_mask(rewards: Tensor, group_ids: Tensor, *, low: float = 0.0, high: float = 1.0) -> Tensor:
    """Select the rows of prompts that are neither too hard nor too easy.

    The group's share of positive rewards is above ``low`` and below ``high`` (neither included). Both [B].

    >>> difficulty_mask(torch.tensor([1., 0., 1., 1.]), torch.tensor([0, 0, 1, 1]))
    tensor([ True,  True, False, False])
    """
    solved = group_statistics((rewards > 0).double(), group_ids).mean
    return (solved > low) & (solved < high)


def max_len_mask(truncated: Tensor, mask: Tensor) -> Tensor:
    """Select the rows that the length limit did not cut: no valid position is ``truncated``. Both bool [B, T].

    >>> max_len_mask(torch.tensor([[False, True], [False, True]]), torch.tensor([[True, True], [True, False]]))
    tensor([False,  True])
    """
    return ~(truncated & mask).any(dim=1)
