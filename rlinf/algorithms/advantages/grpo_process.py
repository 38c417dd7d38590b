"""GRPO with process supervision (DeepSeekMath, arXiv:2402.03300, section 4.1.3)."""

from __future__ import annotations

import torch

from rlinf.algorithms.advantages.estimate import AdvantageInputs, Advantages
from rlinf.algorithms.scan import discounted_sum
from rlinf.algorithms.statistics import EPS, SingletonGroup


def grpo_process(
    x: AdvantageInputs,
    *,
    std_ddof: int = 1,
    normalize_by_std: bool = True,
    singleton_group: SingletonGroup = "error",
) -> Advantages:
    """``A_{i,t}`` = the sum of the normalised rewards of the steps of row i that end at position t or later.

    Mean and deviation are over all steps of all members of the group. A row alone in its group is a ValueError unless
    ``singleton_group`` is ``zero``, or ``raw``: the sum of its step rewards as they are. Without step rewards a
    ValueError.

    Steps 1 and 0 in one row, 1 in the other: mean 2/3, std 0.5774; normalised 0.5774, -1.1547 and 0.5774:

    >>> nan = float("nan")
    >>> from rlinf.algorithms import compute_advantages
    >>> compute_advantages("grpo_process", rewards=torch.zeros(2), mask=torch.ones(2, 3).bool(),
    ...     group_ids=torch.zeros(2).long(),
    ...                    step_rewards=torch.tensor([[1., nan, 0.], [nan, 1., nan]])).advantages
    tensor([[-0.5773, -1.1547, -1.1547],
            [ 0.5773,  0.5773,  0.0000]])
    """
    if x.step_rewards is None:
        raise ValueError("adv_type grpo_process needs step_rewards [B, T], NaN where no step ends")
    ends = x.mask & ~x.step_rewards.isnan()
    raw = torch.where(ends, x.step_rewards, 0.0)
    ids = x.group_ids[:, None].expand_as(x.mask)[ends]
    mean, std = x.compared(raw[ends], ids, std_ddof=std_ddof)
    centred = raw[ends] - mean
    steps = torch.zeros_like(raw)
    steps[ends] = centred / (std + EPS) if normalize_by_std else centred
    ones = torch.ones_like(steps)
    returns = discounted_sum(raw, x.mask, ones)
    advantages = x.settle_singletons(discounted_sum(steps, x.mask, ones), returns, singleton_group)
    return Advantages(advantages, returns)
