"""The policy gradient (Williams 1992, doi:10.1007/BF00992696)."""

from __future__ import annotations

from rlinf.algorithms.objective import LossInputs, TokenLoss


def reinforce(x: LossInputs) -> TokenLoss:
    """Compute ``-A logp`` [B, T].

    >>> import torch
    >>> one = torch.ones(1, 1)
    >>> reinforce(LossInputs.clean(one.bool(), logprobs=-2 * one, old_logprobs=one, advantages=3 * one)).policy
    tensor([[6.]])
    """
    return TokenLoss(-x.advantages * x.logprobs)
