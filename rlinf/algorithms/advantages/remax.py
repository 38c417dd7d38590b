"""ReMax (Li et al., arXiv:2310.10505)."""

from __future__ import annotations

from rlinf.algorithms.advantages.estimate import AdvantageInputs, Advantages


def remax(x: AdvantageInputs) -> Advantages:
    """``R_i - R_greedy``, with ``greedy_rewards`` [B] the reward of the greedy response to the row's prompt.

    >>> import torch
    >>> from rlinf.algorithms import compute_advantages
    >>> compute_advantages("remax", rewards=torch.tensor([1., 0.]), mask=torch.ones(2, 1).bool(),
    ...     group_ids=torch.tensor([0, 0]),
    ...                    greedy_rewards=torch.tensor([.25, .25])).advantages.flatten()
    tensor([ 0.7500, -0.2500])
    """
    if x.greedy_rewards is None:
        raise ValueError(
            "adv_type remax needs greedy_rewards [B]: the reward of the greedy response to each row's prompt"
        )
    advantages = x.per_row(x.outcomes - x.greedy_rewards)
    return Advantages(advantages, advantages)
