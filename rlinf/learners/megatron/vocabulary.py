"""Log-probability and entropy of tokens from logits that are split over the vocabulary; no rank sees all logits."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

# Instead of minus infinity, whose product with a probability of 0 is no number.
_NEVER = -1e30


def score_tokens(
    logits: Tensor,
    tokens: Tensor,
    *,
    vocabulary: int,
    temperature: float = 1.0,
    group: dist.ProcessGroup | None = None,
) -> tuple[Tensor, Tensor]:
    """(log-probabilities, entropies) [S] float32, the same on all ranks of ``group``, with gradient.

    Args:
        logits: [S, V'] this rank's part of the padded vocabulary, any floating dtype; never changed.
        tokens: [S] int64 ids in the whole vocabulary.
        vocabulary: size without padding; what lies beyond has probability 0.
        temperature: divides the logits; 0 (greedy) reports the distribution at 1.
        group: the tensor-parallel ranks, in the order of their parts; None is one rank.
    """
    logprobs, entropy = _Scores.apply(logits, tokens, vocabulary, temperature or 1.0, group)
    return logprobs, entropy


class _Scores(torch.autograd.Function):
    """With z the logits over temperature, l = log softmax(z) and p its exponential:

    d logprob / dz_j = [j is the token] - p_j,  d entropy / dz_j = -p_j (l_j + entropy).
    """

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, tokens: Tensor, vocabulary: int, temperature: float, group: dist.ProcessGroup | None
    ) -> tuple[Tensor, Tensor]:
        width = logits.shape[-1]
        first = 0 if group is None else group.rank() * width
        scores = logits.float() / temperature
        real = max(0, min(width, vocabulary - first))
        scores[:, real:] = _NEVER
        highest = scores.amax(-1)
        _reduce(highest, dist.ReduceOp.MAX, group)
        scores -= highest[:, None]
        total = scores.exp().sum(-1)
        here = (tokens >= first) & (tokens < first + width)
        column = (tokens - first).clamp(0, width - 1)
        chosen = torch.where(here, scores.gather(-1, column[:, None])[:, 0], 0.0)
        sums = torch.stack([total, chosen])
        _reduce(sums, dist.ReduceOp.SUM, group)
        log_total = sums[0].log()
        scores -= log_total[:, None]
        entropy = -(scores.exp() * scores).sum(-1)
        _reduce(entropy, dist.ReduceOp.SUM, group)
        ctx.save_for_backward(scores, here, column, entropy)
        ctx.temperature, ctx.dtype = temperature, logits.dtype
        return sums[1] - log_total, entropy

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None, None]:
        scores, here, column, entropy = ctx.saved_tensors
        of_logprob, of_entropy = gradients
        gradient = -scores.exp() * (of_logprob[:, None] + of_entropy[:, None] * (scores + entropy[:, None]))
        gradient.scatter_add_(-1, column[:, None], torch.where(here, of_logprob, 0.0)[:, None])
        return (gradient / ctx.temperature).to(ctx.dtype), None, None, None, None


def _reduce(tensor: Tensor, operation: Any, group: dist.ProcessGroup | None) -> None:
    if group is not None and group.size() > 1:
        dist.all_reduce(tensor, op=operation, group=group)
