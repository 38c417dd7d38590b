"""PPO with a critic: the clipped surrogate and the clipped regression of the values (arXiv:1707.06347)."""

from __future__ import annotations

from rlinf.algorithms.clip_range import PPO_CLIP, Clip
from rlinf.algorithms.losses.actor import actor
from rlinf.algorithms.losses.value import value_loss
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
    error = (x.returns - x.values).detach()
    moments = {
        "value": x.values.detach(),
        "return": x.returns,
        "return_squared": x.returns.square(),
        "value_error": error,
        "value_error_squared": error.square(),
        "value_clip_fraction": clipped,
    }
    return TokenLoss(policy.policy, value_coef * cost, {**policy.metrics, **moments})
