"""Group-in-Group Policy Optimization (Feng et al., arXiv:2505.10978)."""

from __future__ import annotations

from rlinf.algorithms.advantages.estimate import AdvantageInputs, Advantages
from rlinf.algorithms.advantages.grpo import group_normalised
from rlinf.algorithms.advantages.turns import Turns
from rlinf.algorithms.statistics import SingletonGroup


def gigpo(
    x: AdvantageInputs,
    *,
    std_ddof: int = 1,
    normalize_by_std: bool = True,
    singleton_group: SingletonGroup = "error",
    gamma: float = 1.0,
    step_weight: float = 1.0,
) -> Advantages:
    """Episode advantage (as ``grpo``) plus ``step_weight`` times the step advantage.

    A step begins in a valid position whose ``anchor_ids`` is 0 or more and goes on through the positions with -1
    (the further tokens of a turn). Its value is the reward-to-go at its first position, discounted by ``gamma``
    from step to step. It is compared with all steps of the group that begin in the same anchor state; a step that
    is alone there gets 0.

    Two rows of two steps, both from state 5, then separate; R = 1 and 0: episode +-0.7071, first steps +-0.7071
    more.

    >>> import torch
    >>> from rlinf.algorithms import compute_advantages
    >>> compute_advantages("gigpo", rewards=torch.tensor([1., 0.]), mask=torch.ones(2, 2).bool(),
    ...     group_ids=torch.zeros(2).long(),
    ...                    anchor_ids=torch.tensor([[5, 6], [5, 7]])).advantages
    tensor([[ 1.4142,  0.7071],
            [-1.4142, -0.7071]])
    """
    turns = Turns.of(x, adv_type="gigpo", gamma=gamma)
    episode = group_normalised(x, std_ddof=std_ddof, normalize_by_std=normalize_by_std, singleton_group=singleton_group)
    steps = turns.compared(x, turns.anchors, std_ddof=std_ddof, normalize_by_std=normalize_by_std)
    return Advantages((episode[:, None] + step_weight * steps) * x.mask, turns.returns)
