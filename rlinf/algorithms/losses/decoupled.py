"""Decoupled PPO for stale data (Hilton et al., arXiv:2110.00641; AReaL, arXiv:2505.24298)."""

from __future__ import annotations

from rlinf.algorithms.clip_range import PPO_CLIP, Clip
from rlinf.algorithms.kl import exp_clamped
from rlinf.algorithms.losses.actor import actor
from rlinf.algorithms.objective import LossInputs, TokenLoss


def decoupled(
    x: LossInputs,
    *,
    clip: Clip = PPO_CLIP,
    behave_weight_threshold: float | None = None,
) -> TokenLoss:
    """``actor`` against the proximal policy (``old_logprobs``) times ``exp(proximal - behaviour)``, [B, T].

    A position whose weight exceeds ``behave_weight_threshold`` has loss 0; it still counts in the denominators, so that
    these do not depend on how stale the data are. Without ``rollout_logprobs`` (the behaviour policy's) a ValueError.

    proximal - behaviour = log 2, ratio 1, A = 1 -> -2:

    >>> import torch
    >>> one = torch.ones(1, 1)
    >>> x = LossInputs.clean(one.bool(), logprobs=one, old_logprobs=one, advantages=one,
    ...     rollout_logprobs=one - torch.tensor(2.0).log())
    >>> decoupled(x).policy, decoupled(x, behave_weight_threshold=1.5).policy
    (tensor([[-2.]]), tensor([[-0.]]))
    """
    if x.rollout_logprobs is None:
        raise ValueError("loss_type decoupled weights by the behaviour policy: give rollout_logprobs")
    surrogate = actor(x, clip=clip)
    weight = exp_clamped(x.old_logprobs - x.rollout_logprobs).detach()
    kept = weight <= behave_weight_threshold if behave_weight_threshold is not None else weight >= 0
    metrics = {"behave_weight": weight, "behave_kept_fraction": kept}
    return TokenLoss(surrogate.policy * weight * kept, metrics={**surrogate.metrics, **metrics})
