"""REINFORCE leave-one-out (Ahmadian et al., arXiv:2402.14740)."""

from __future__ import annotations

from rlinf.algorithms.advantages.estimate import AdvantageInputs, Advantages
from rlinf.algorithms.statistics import SingletonGroup


def rloo(x: AdvantageInputs, *, singleton_group: SingletonGroup = "error") -> Advantages:
    """``R_i`` minus the mean of the other members of the group: ``(R_i - mean_g) n / (n - 1)``.

    R = [1, 0, 0, 1]: the others' means are 1/3 and 2/3.

    >>> import torch
    >>> from rlinf.algorithms import compute_advantages
    >>> compute_advantages("rloo", rewards=torch.tensor([1., 0., 0., 1.]), mask=torch.ones(4, 1).bool(),
    ...                    group_ids=torch.zeros(4).long()).advantages.flatten()
    tensor([ 0.6667, -0.6667, -0.6667,  0.6667])
    """
    group = x.outcome_statistics()
    rows = (x.outcomes - group.mean) * group.count / (group.count - 1).clamp(min=1)
    advantages = x.per_row(x.settle_singletons(rows, x.outcomes, singleton_group))
    return Advantages(advantages, advantages)
