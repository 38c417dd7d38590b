"""REINFORCE++ (Hu et al., arXiv:2501.03262)."""

from __future__ import annotations

from rlinf.algorithms.advantages.estimate import AdvantageInputs, Advantages
from rlinf.algorithms.advantages.reinforce import reinforce


def reinforce_pp(x: AdvantageInputs, *, gamma: float = 1.0) -> Advantages:
    """Reward-to-go of (R at the last valid position, minus the token KL).

    ``compute_advantages`` subtracts the KL (``kl_coef``) before and whitens over the global batch after; ``returns``
    are not whitened.

    R = 1 and 0 -> whitened +-0.7071:

    >>> import torch
    >>> from rlinf.algorithms import compute_advantages
    >>> compute_advantages("reinforce_pp", rewards=torch.tensor([1., 0.]), mask=torch.ones(2, 1).bool(),
    ...     group_ids=torch.tensor([0, 1])).advantages
    tensor([[ 0.7071],
            [-0.7071]])
    """
    return reinforce(x, gamma=gamma)
