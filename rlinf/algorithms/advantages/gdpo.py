"""Group reward-Decoupled Normalization Policy Optimization (arXiv:2601.05242)."""

from __future__ import annotations

import torch

from rlinf.algorithms.advantages.estimate import AdvantageInputs, Advantages
from rlinf.algorithms.statistics import EPS, SingletonGroup, group_statistics


def gdpo(x: AdvantageInputs, *, std_ddof: int = 1, singleton_group: SingletonGroup = "error") -> Advantages:
    """``A_sum = sum_k w_k (r_k - mean_g r_k) / (std_g r_k + 1e-6)``, then ``(A_sum - mean) / (std + 1e-6)`` over rows.

    Each reward term r_k [B] is normalised in its group on its own, so that its scale does not decide how much it
    counts: its weight w_k does. The second mean and deviation are over the rows of the batch with a valid position.
    A term that is NaN was not measured: it is left out of its group's numbers, and adds 0. A row alone in its
    group is settled before the second step; both deviations are of ``std_ddof``.

    Two groups of two, with correctness (weight 1) and a length term of a tenth of its scale (weight 1).
    In the first group both terms rise together, each by +-0.7071, so A_sum is -1.4142 and 1.4142; in the second only
    correctness differs: -0.7071 and 0.7071. Their deviation over the batch is sqrt(5 / 3) = 1.2910:

    >>> from rlinf.algorithms import compute_advantages
    >>> terms = torch.tensor([[0., -.1], [1., 0.], [0., 0.], [1., 0.]])
    >>> of_terms = {"reward_terms": terms, "reward_weights": torch.ones(4, 2)}
    >>> found = {name: compute_advantages(name, rewards=terms.sum(dim=1), mask=torch.ones(4, 1).bool(),
    ...                                   group_ids=torch.tensor([0, 0, 1, 1]), **of_terms).advantages.flatten()
    ...          for name in ("gdpo", "grpo")}
    >>> found["gdpo"]
    tensor([-1.0954,  1.0954, -0.5477,  0.5477])

    ``grpo`` normalises the sum of the terms, and gives both groups the same:

    >>> found["grpo"]
    tensor([-0.7071,  0.7071, -0.7071,  0.7071])
    """
    if x.reward_terms is None or x.reward_weights is None:
        raise ValueError(
            "adv_type gdpo needs reward_terms and reward_weights [B, K]: the terms of each reward and how they count"
        )
    total = torch.zeros_like(x.outcomes)
    for values, weights in zip(x.reward_terms.T, x.reward_weights.T, strict=True):
        result = values.isfinite()
        group = group_statistics(values[result], x.group_ids[result], ddof=std_ddof)
        total[result] += weights[result] * (values[result] - group.mean) / (group.std + EPS)
    total = x.settle_singletons(total, x.outcomes, singleton_group)
    learned = x.mask.any(dim=1)
    batch = group_statistics(total[learned], torch.zeros_like(x.group_ids[learned]), ddof=std_ddof)
    rows = torch.zeros_like(total)
    rows[learned] = (total[learned] - batch.mean) / (batch.std + EPS)
    advantages = x.per_row(rows)
    return Advantages(advantages, advantages)
