"""Group Relative Policy Optimization (DeepSeekMath, arXiv:2402.03300)."""

from __future__ import annotations

from torch import Tensor

from rlinf.algorithms.advantages.estimate import AdvantageInputs, Advantages
from rlinf.algorithms.statistics import EPS, SingletonGroup


def group_normalised(
    x: AdvantageInputs, *, std_ddof: int, normalize_by_std: bool, singleton_group: SingletonGroup
) -> Tensor:
    """``(R - mean_g) / (std_g + 1e-6)`` [B]."""
    group = x.outcome_statistics(std_ddof=std_ddof)
    centred = x.outcomes - group.mean
    scaled = centred / (group.std + EPS) if normalize_by_std else centred
    return x.settle_singletons(scaled, x.outcomes, singleton_group)


def grpo(
    x: AdvantageInputs,
    *,
    std_ddof: int = 1,
    normalize_by_std: bool = True,
    singleton_group: SingletonGroup = "error",
) -> Advantages:
    """``(R_i - mean_g) / (std_g + 1e-6)``, the same for every valid position of the row.

    ``std_ddof`` 0 is the paper's form; ``normalize_by_std: false`` that of Dr. GRPO (arXiv:2503.20783). A
    constant group gives exactly 0; a group of one is a ValueError unless ``singleton_group`` allows it.

    R = [1, 0, 0, 1] as one group: mean 1/2, std sqrt(1/3), so +-0.8660; as two groups of two: +-0.7071.

    >>> import torch
    >>> from rlinf.algorithms import compute_advantages
    >>> def grpo_of(*groups): return compute_advantages("grpo", rewards=torch.tensor([1., 0., 0., 1.]),
    ...     mask=torch.ones(4, 1).bool(), group_ids=torch.tensor(groups)).advantages.flatten()
    >>> grpo_of(0, 0, 0, 0), grpo_of(0, 0, 1, 1)
    (tensor([ 0.8660, -0.8660, -0.8660,  0.8660]), tensor([ 0.7071, -0.7071, -0.7071,  0.7071]))
    """
    rows = group_normalised(x, std_ddof=std_ddof, normalize_by_std=normalize_by_std, singleton_group=singleton_group)
    advantages = x.per_row(rows)
    return Advantages(advantages, advantages)
