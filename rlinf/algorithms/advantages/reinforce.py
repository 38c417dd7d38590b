"""Reward-to-go (Williams 1992, doi:10.1007/BF00992696)."""

from __future__ import annotations

import torch
from torch import Tensor

from rlinf.algorithms.advantages.estimate import AdvantageInputs, Advantages
from rlinf.algorithms.scan import discounted_sum, episode_ends


def reward_to_go(x: AdvantageInputs, rewards: Tensor, gamma: float) -> Tensor:
    """``G_t = r_t + gamma G_{t+1}`` within the episode, [B, T]."""
    ends = episode_ends(x.mask, x.terminated, x.truncated)
    return discounted_sum(rewards, x.mask, torch.where(ends, 0.0, gamma).double())


def reinforce(x: AdvantageInputs, *, gamma: float = 1.0) -> Advantages:
    """``A_t = r_t + gamma A_{t+1}``, cut where an episode ends.

    >>> from rlinf.algorithms import compute_advantages
    >>> compute_advantages("reinforce", rewards=torch.tensor([[0., 1., 4.]]), mask=torch.ones(1, 3).bool(),
    ...                    group_ids=torch.tensor([0]), gamma=.5).advantages
    tensor([[1.5000, 3.0000, 4.0000]])
    """
    returns = reward_to_go(x, x.rewards, gamma)
    return Advantages(returns, returns)
