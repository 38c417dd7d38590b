"""PPO with a critic: the clipped surrogate and the clipped regression of the values (arXiv:1707.06347)."""

from __future__ import annotations

import torch
from torch import Tensor

from rlinf.algorithms.clip_range import PPO_CLIP, Clip
from rlinf.algorithms.losses.actor import actor
from rlinf.algorithms.objective import LossInputs, TokenLoss


def actor_critic(
    x: LossInputs,
    *,
    clip: Clip = PPO_CLIP,
    value_coef: float = 0.5,
    value_clip: float | None = None,
    huber_delta: float | None = None,
) -> TokenLoss:
    """``actor`` plus ``value_coef`` times the value loss, each [B, T]. Without ``values`` or ``returns`` a ValueError.

    >>> import torch
    >>> one = torch.ones(1, 1)
    >>> x = LossInputs.clean(one.bool(), logprobs=one, old_logprobs=one, advantages=one, values=2 * one,
    ...     returns=3 * one)
    >>> actor_critic(x).value
    tensor([[0.5000]])
    """
    if x.values is None or x.returns is None:
        raise ValueError("loss_type actor_critic regresses values on returns: give both")
    policy = actor(x, clip=clip)
    cost, clipped = value_loss(
        x.values, x.returns, old_values=x.old_values, value_clip=value_clip, huber_delta=huber_delta
    )
    values = x.values.detach()
    error = x.returns - values
    moments = {
        "value": values,
        "return": x.returns,
        "return_squared": x.returns.square(),
        "value_error": error,
        "value_error_squared": error.square(),
        "value_clip_fraction": clipped,
    }
    return TokenLoss(policy.policy, value_coef * cost, {**policy.metrics, **moments})


def value_loss(
    values: Tensor,
    returns: Tensor,
    *,
    old_values: Tensor | None = None,
    value_clip: float | None = None,
    huber_delta: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Compute ``max(h(R - V), h(R - V_clip))`` with ``V_clip = V_old + clamp(V - V_old, +-value_clip)``.

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
