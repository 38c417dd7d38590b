"""REINFORCE++ with a group baseline (Hu et al., arXiv:2501.03262)."""

from __future__ import annotations

import torch

from rlinf.algorithms.advantages.estimate import AdvantageInputs, Advantages
from rlinf.algorithms.advantages.reinforce import reward_to_go
from rlinf.algorithms.scan import last_true
from rlinf.algorithms.statistics import SingletonGroup


def reinforce_pp_baseline(
    x: AdvantageInputs, *, gamma: float = 1.0, singleton_group: SingletonGroup = "error"
) -> Advantages:
    """``reinforce_pp`` minus the group's mean outcome (before the token KL) at the row's last valid position.

    A group of one is a ValueError unless ``singleton_group`` allows it (``raw``: no baseline, ``zero``: no
    reward).

    R = [1, 0] and [3, 3] in groups -> [.5, -.5], [0, 0]; whitened by the deviation sqrt(1/6):

    >>> from rlinf.algorithms import compute_advantages
    >>> compute_advantages("reinforce_pp_baseline", rewards=torch.tensor([1., 0., 3., 3.]), mask=torch.ones(4,
    ...     1).bool(),
    ...                    group_ids=torch.tensor([0, 0, 1, 1])).advantages.flatten()
    tensor([ 1.2247, -1.2247,  0.0000,  0.0000])
    """
    mean, _ = x.compared(x.task_outcomes, x.group_ids)
    last = last_true(x.mask)
    centred = torch.where(last, x.rewards - (mean / x.whitening_scale)[:, None], x.rewards)
    returns = x.settle_singletons(reward_to_go(x, centred, gamma), reward_to_go(x, x.rewards, gamma), singleton_group)
    return Advantages(returns, returns)
