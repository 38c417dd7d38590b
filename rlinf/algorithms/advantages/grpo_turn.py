"""GRPO with an advantage for each turn of a conversation (Zeng et al., arXiv:2505.11821)."""

from __future__ import annotations

from rlinf.algorithms.advantages.estimate import AdvantageInputs, Advantages
from rlinf.algorithms.advantages.turns import Turns
from rlinf.algorithms.statistics import SingletonGroup


def grpo_turn(
    x: AdvantageInputs,
    *,
    std_ddof: int = 1,
    normalize_by_std: bool = True,
    singleton_group: SingletonGroup = "error",
    gamma: float = 1.0,
) -> Advantages:
    """``A_{i,k} = (G_{i,k} - mean_{g,k}) / (std_{g,k} + 1e-6)`` for every token of turn k of row i.

    ``G_{i,k}`` is what row i earns from turn k on, discounted by ``gamma`` from turn to turn: with 0 a turn
    answers for its own reward alone. It is compared with the k-th turns of the group; one that no other row has
    gets 0. A turn begins where ``anchor_ids`` is 0 or more.

    Two rows of two turns that earn 1, 0 and 0, 0: with gamma 1 and 0 alike only the first turns differ, +-0.7071:

    >>> import torch
    >>> from rlinf.algorithms import compute_advantages
    >>> compute_advantages("grpo_turn", rewards=torch.tensor([[1., 0.], [0., 0.]]), mask=torch.ones(2, 2).bool(),
    ...     group_ids=torch.zeros(2).long(), anchor_ids=torch.tensor([[5, 6], [5, 7]])).advantages
    tensor([[ 0.7071,  0.0000],
            [-0.7071,  0.0000]])
    """
    turns = Turns.of(x, adv_type="grpo_turn", gamma=gamma)
    advantages = turns.compared(x, turns.numbers, std_ddof=std_ddof, normalize_by_std=normalize_by_std)
    return Advantages(x.settle_singletons(advantages, turns.returns, singleton_group), turns.returns)
