"""On-Policy RL with Optimal reward baseline (Hao et al., arXiv:2505.23585)."""

from __future__ import annotations

import torch

from rlinf.algorithms.advantages.estimate import AdvantageInputs, Advantages
from rlinf.algorithms.statistics import SingletonGroup, group_statistics


def opo(x: AdvantageInputs, *, singleton_group: SingletonGroup = "error") -> Advantages:
    """``R_i - sum_g l R / sum_g l`` with l the row's number of valid positions.

    R = [1, 0], lengths 3 and 1 -> baseline 3/4:

    >>> from rlinf.algorithms import compute_advantages
    >>> compute_advantages("opo", rewards=torch.tensor([1., 0.]), mask=torch.tensor([[True, True, True], [True,
    ...     False, False]]),
    ...                    group_ids=torch.tensor([0, 0])).advantages
    tensor([[ 0.2500,  0.2500,  0.2500],
            [-0.7500,  0.0000,  0.0000]])
    """
    lengths = x.lengths.double()
    weighted = group_statistics(x.outcomes * lengths, x.group_ids).mean
    length = group_statistics(lengths, x.group_ids).mean
    group = x.outcome_statistics()
    baseline = torch.where(group.constant, group.mean, weighted / length.clamp(min=1e-12))
    advantages = x.per_row(x.settle_singletons(x.outcomes - baseline, x.outcomes, singleton_group))
    return Advantages(advantages, advantages)
