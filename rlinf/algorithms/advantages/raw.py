"""The reward itself: a policy gradient without a baseline."""

from __future__ import annotations

from rlinf.algorithms.advantages.estimate import AdvantageInputs, Advantages


def raw(x: AdvantageInputs) -> Advantages:
    """Compute ``A = R``, the same for every valid position of the row.

    >>> import torch
    >>> from rlinf.algorithms import compute_advantages
    >>> compute_advantages("raw", rewards=torch.tensor([2.]), mask=torch.tensor([[True, False]]),
    ...     group_ids=torch.tensor([0])).advantages
    tensor([[2., 0.]])
    """
    advantages = x.per_row(x.outcomes)
    return Advantages(advantages, advantages)
