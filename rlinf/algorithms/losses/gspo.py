"""Group Sequence Policy Optimization (Zheng et al., arXiv:2507.18071)."""

from __future__ import annotations

from rlinf.algorithms.clip_range import PPO_CLIP, Clip
from rlinf.algorithms.kl import exp_clamped
from rlinf.algorithms.losses.actor import clipped_surrogate
from rlinf.algorithms.objective import LossInputs, TokenLoss


def gspo(
    x: LossInputs,
    *,
    clip: Clip = PPO_CLIP,
) -> TokenLoss:
    """Compute the surrogate [B, T] of the sequence ratio ``s = exp(mean over true positions of (logp - old))``.

    Every position of the row has the value of s; the gradient of position t flows through logp_t alone
    (stop-gradient form), so that with ``seq-mean-token-mean`` it is that of s. Rows must be whole.

    log-ratios 0.1 and 0.3 -> s = exp(0.2) = 1.2214, clipped at 1.2:

    >>> import torch
    >>> x = LossInputs.clean(torch.ones(1, 2, dtype=torch.bool), logprobs=torch.tensor([[.1, .3]]),
    ...     old_logprobs=torch.zeros(1, 2),
    ...                      advantages=torch.tensor([[1., -1.]]))
    >>> gspo(x).policy
    tensor([[-1.2000,  1.2214]])
    """
    sequence = x.row_mean(x.log_ratio.detach())
    ratio = exp_clamped(sequence + x.logprobs - x.logprobs.detach())
    return clipped_surrogate(ratio, x.advantages, clip)
