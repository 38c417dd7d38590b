"""Maximum likelihood reinforcement learning (arXiv:2602.02710)."""

from __future__ import annotations

import torch

from rlinf.algorithms.advantages.estimate import AdvantageInputs, Advantages
from rlinf.algorithms.statistics import SingletonGroup


def maxrl(x: AdvantageInputs, *, singleton_group: SingletonGroup = "error") -> Advantages:
    """``(R - mean_g) / mean_g``, 0 for a group whose mean is not above 0.

    With rewards of 0 and 1 the mean is the group's success rate p, and the update follows the gradient of log p, not of
    p: a prompt that is rarely solved weighs more. Over n responses this is unbiased for the first n - 1
    terms of ``log p = -sum_k (1 - p)^k / k``: a group without success has advantage 0.

    R = [1, 0, 0, 0] has mean 1/4, so 3 and -1; R = [1, 1, 1, 0] has mean 3/4, so 1/3 and -1:

    >>> from rlinf.algorithms import compute_advantages
    >>> rewards = torch.tensor([1., 0., 0., 0., 1., 1., 1., 0.])
    >>> compute_advantages("maxrl", rewards=rewards, mask=torch.ones(8, 1).bool(),
    ...                    group_ids=torch.arange(8) // 4).advantages.flatten()
    tensor([ 3.0000, -1.0000, -1.0000, -1.0000,  0.3333,  0.3333,  0.3333, -1.0000])
    """
    mean = x.outcome_statistics().mean
    solved = mean > 0
    rows = torch.where(solved, (x.outcomes - mean) / torch.where(solved, mean, 1.0), 0.0)
    advantages = x.per_row(x.settle_singletons(rows, x.outcomes, singleton_group))
    return Advantages(advantages, advantages)
