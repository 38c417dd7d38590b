"""The sampling distribution: what temperature, top-k, top-p and a repetition penalty make of logits.

Sampler and learner share this file, so that a log-probability means the same in both. A truncated distribution always
keeps the token that was drawn: under newer weights it may have left the top, and its ratio must stay finite.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rlinf.types import SamplingParams


def processed_logits(
    logits: Tensor, params: SamplingParams, *, seen: Tensor | None = None, keep: Tensor | None = None
) -> Tensor:
    """Float32 logits [S, V] of the sampling distribution.

    ``seen`` [S, V] bool: tokens that the repetition penalty applies to (read where it is not 1).
    ``keep`` [S] int64: tokens that stay in the support whatever top-k and top-p say.
    """
    logits = logits.float()
    if params.repetition_penalty != 1.0:
        if seen is None:
            raise ValueError("a repetition penalty needs the tokens seen so far")
        scale = params.repetition_penalty
        logits = torch.where(seen, torch.where(logits > 0, logits / scale, logits * scale), logits)
    if params.temperature not in (0.0, 1.0):
        logits = logits / params.temperature
    if params.top_k <= 0 and params.top_p >= 1.0:
        return logits
    outside = _outside(logits, params)
    if keep is not None:
        outside = outside.scatter(-1, keep[:, None], False)
    return logits.masked_fill(outside, -torch.inf)


def _outside(logits: Tensor, params: SamplingParams) -> Tensor:
    """[S, V] bool: tokens outside top-k or outside the nucleus. The likeliest token is always inside."""
    with torch.no_grad():
        ordered, order = logits.sort(dim=-1, descending=True)
        rank = torch.arange(logits.shape[-1], device=logits.device)
        out = torch.zeros_like(ordered, dtype=torch.bool)
        if params.top_k > 0:
            out = out | (rank >= params.top_k)
            ordered = ordered.masked_fill(out, -torch.inf)
        if params.top_p < 1.0:
            before = ordered.softmax(-1).cumsum(-1) - ordered.softmax(-1)
            out = out | ((before >= params.top_p) & (rank > 0))
        return torch.zeros_like(out).scatter(-1, order, out)
