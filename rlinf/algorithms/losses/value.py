"""Regression of the critic, clipped around the values at the time of the rollout (PPO, arXiv:1707.06347)."""

from __future__ import annotations

import torch
from torch import Tensor


def value_loss(
    values: Tensor,
    returns: Tensor,
    *,
    old_values: Tensor | None = None,
    value_clip: float | None = None,
    huber_delta: float | None = None,
) -> tuple[Tensor, Tensor]:
    """``max(h(R - V), h(R - V_clip))`` with ``V_clip = V_old + clamp(V - V_old, +-value_clip)``.

    Returns the loss and where the clip decided it (bool), both [B, T].

    h is the squared error, or with ``huber_delta`` the Huber loss (e^2 / 2 within delta, delta (|e| - delta / 2)
    beyond). A ``value_clip`` without ``old_values`` is a ValueError.

    V = 2, V_old = 1, R = 3, clip 0.5 -> V_clip = 1.5, max(1, 2.25):

    >>> value_loss(torch.tensor([2.]), torch.tensor([3.]), old_values=torch.tensor([1.]), value_clip=0.5)
    (tensor([2.2500]), tensor([True]))
    """

    def cost(prediction: Tensor) -> Tensor:
        error = returns - prediction
        if huber_delta is None:
            return error.square()
        inside = error.abs() <= huber_delta
        return torch.where(inside, error.square() / 2, huber_delta * (error.abs() - huber_delta / 2))

    plain = cost(values)
    if not value_clip:
        return plain, torch.zeros_like(plain, dtype=torch.bool)
    if old_values is None:
        raise ValueError("value_clip clips around old_values: give them")
    clipped = cost(old_values + (values - old_values).clamp(-value_clip, value_clip))
    return torch.maximum(plain, clipped), clipped > plain
