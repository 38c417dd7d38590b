"""Group-in-Group Policy Optimization (Feng et al., arXiv:2505.10978)."""

from __future__ import annotations

import torch
from torch import Tensor

from rlinf.algorithms.advantages.grpo import group_normalised
from rlinf.algorithms.advantages.inputs import AdvantageInputs, Advantages
from rlinf.algorithms.scan import discounted_sum, episode_ends, shift_back
from rlinf.algorithms.statistics import EPS, SingletonGroup, group_statistics


def _pairs(first: Tensor, second: Tensor) -> Tensor:
    """One id [N] for every distinct pair."""
    one, two = (torch.unique(part) for part in (first, second))
    return torch.searchsorted(one, first) * len(two) + torch.searchsorted(two, second)


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

    A step begins in a valid position whose ``anchor_ids`` is 0 or more and goes on through the positions with -1 (the
    further tokens of a turn). Its value is the reward-to-go at its first position, discounted by ``gamma`` from step to
    step. It is compared with all steps of the group that begin in the same anchor state; a step that is alone there
    gets 0.

    Two rows of two steps, both from state 5, then apart; R = 1 and 0: episode +-0.7071, first steps +-0.7071 more.

    >>> from rlinf.algorithms import compute_advantages
    >>> compute_advantages("gigpo", rewards=torch.tensor([1., 0.]), mask=torch.ones(2, 2).bool(),
    ...     group_ids=torch.zeros(2).long(),
    ...                    anchor_ids=torch.tensor([[5, 6], [5, 7]])).advantages
    tensor([[ 1.4142,  0.7071],
            [-1.4142, -0.7071]])
    """
    if x.anchor_ids is None:
        raise ValueError("adv_type gigpo needs anchor_ids [B, T]: the state that each step starts from")
    episode = group_normalised(x, std_ddof=std_ddof, normalize_by_std=normalize_by_std, singleton_group=singleton_group)
    begins = x.mask & (x.anchor_ids >= 0)
    ends = episode_ends(x.mask, x.terminated, x.truncated)
    step_follows = shift_back(begins.double(), x.mask) > 0
    decay = torch.where(ends, 0.0, torch.where(step_follows, gamma, 1.0)).double()
    returns = discounted_sum(x.rewards, x.mask, decay)

    ids = _pairs(x.group_ids[:, None].expand_as(x.mask)[begins], x.anchor_ids[begins])
    peers = group_statistics(returns[begins], ids, ddof=std_ddof)
    centred = returns[begins] - peers.mean
    steps = torch.zeros_like(returns)
    steps[begins] = centred / (peers.std + EPS) if normalize_by_std else centred

    started = begins.long().cumsum(dim=1)
    first = torch.where(begins, torch.arange(x.mask.shape[1], device=x.mask.device), 0).cummax(dim=1).values
    of_position = torch.where(started > 0, steps.gather(1, first), 0.0)
    advantages = (episode[:, None] + step_weight * of_position) * x.mask
    return Advantages(advantages, returns)
