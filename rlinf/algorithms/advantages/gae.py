"""Generalised advantage estimation (Schulman et al., arXiv:1506.02438)."""

from __future__ import annotations

import torch

from rlinf.algorithms.advantages.estimate import AdvantageInputs, Advantages
from rlinf.algorithms.scan import discounted_sum, episode_ends, last_true, shift_back


def gae(x: AdvantageInputs, *, gamma: float = 1.0, gae_lambda: float = 0.95) -> Advantages:
    """``delta_t = r_t + gamma V_{t+1} (1 - terminated_t) - V_t``, summed with ``gamma gae_lambda`` in the episode.

    ``V_{t+1}`` is the value at the row's next valid position; where ``truncated`` and at the row's last valid
    position it is ``bootstrap_values`` (0 without them: the row is over), where ``terminated`` 0. A truncated
    position without ``bootstrap_values`` is a ValueError. ``returns = A + V``.

    r = [0, 1, 0], the episode ends in position 1, V = [.1, .2, .3] and .4 after the last position, gamma .9,
    lambda .8: deltas .9 * .2 - .1 = .08, 1 - .2 = .8, .9 * .4 - .3 = .06; A_0 = .08 + .72 * .8 = .656.

    >>> from rlinf.algorithms import compute_advantages
    >>> a, returns = compute_advantages("gae", rewards=torch.tensor([[0., 1., 0.]]), mask=torch.ones(1, 3).bool(),
    ...     group_ids=torch.tensor([0]),
    ...     values=torch.tensor([[.1, .2, .3]]), terminated=torch.tensor([[False, True, False]]),
    ...     bootstrap_values=torch.tensor([[0., 0., .4]]), gamma=.9, gae_lambda=.8)
    >>> a, returns
    (tensor([[0.6560, 0.8000, 0.0600]]), tensor([[0.7560, 1.0000, 0.3600]]))
    """
    if x.values is None:
        raise ValueError("adv_type gae needs values [B, T] of a critic")
    ends = episode_ends(x.mask, x.terminated, x.truncated)
    terminated = episode_ends(x.mask, x.terminated, None)
    cut = ends & ~terminated
    after = torch.zeros_like(x.values) if x.bootstrap_values is None else x.bootstrap_values
    if x.bootstrap_values is None and bool(cut.any()):
        raise ValueError(
            "truncated positions bootstrap from the value of the final observation: give bootstrap_values [B, T]"
        )
    last = last_true(x.mask)
    following = torch.where(cut | last, after, shift_back(x.values, x.mask))
    following = torch.where(terminated, 0.0, following)
    deltas = x.rewards + gamma * following - x.values
    advantages = discounted_sum(deltas, x.mask, torch.where(ends, 0.0, gamma * gae_lambda).double())
    return Advantages(advantages, torch.where(x.mask, advantages + x.values, 0.0))
