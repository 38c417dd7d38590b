"""GRPO for pass@k: only the best response counts, by its lead (after Walder and Karkhanis, arXiv:2505.15201)."""

from __future__ import annotations

import torch

from rlinf.algorithms.advantages.estimate import AdvantageInputs, Advantages
from rlinf.algorithms.statistics import EPS, SingletonGroup, group_statistics


def grpo_passk(
    x: AdvantageInputs,
    *,
    std_ddof: int = 1,
    normalize_by_std: bool = True,
    singleton_group: SingletonGroup = "error",
) -> Advantages:
    """Give the best of the group ``(r1 - r2) / (std_g + 1e-6)``, all others 0; a shared first rank gives 0.

    R = [3, 1, 2]: lead 1, std 1.

    >>> from rlinf.algorithms import compute_advantages
    >>> compute_advantages("grpo_passk", rewards=torch.tensor([3., 1., 2.]), mask=torch.ones(3, 1).bool(),
    ...                    group_ids=torch.zeros(3).long()).advantages.flatten()
    tensor([1.0000, 0.0000, 0.0000])
    """
    group = x.outcome_statistics(std_ddof=std_ddof)
    best = x.outcomes == group.high
    # The highest outcome [B] of the group when one row with the highest is left out.
    others = torch.where(best, -torch.inf, x.outcomes)
    ties = group_statistics(best.double(), x.group_ids)
    runner_up = group_statistics(others, x.group_ids).high
    shared = ties.mean * ties.count > 1.5
    lead = torch.where(best, x.outcomes - torch.where(shared | runner_up.isinf(), x.outcomes, runner_up), 0.0)
    rows = lead / (group.std + EPS) if normalize_by_std else lead
    advantages = x.per_row(x.settle_singletons(rows, x.outcomes, singleton_group))
    return Advantages(advantages, advantages)
