"""The sampling distribution: what the samplers draw from, and what a learner evaluates.

Both sides call :func:`processed_logits`, so the log-probabilities of a batch are of one and the same distribution.
The order of the steps is that of vLLM and transformers: repetition penalty, temperature, top-k, top-p.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from rlinf.data.messages import SamplingParams

_BLOCK = 256
_HEAD = 1024
ROWS_OF_VOCABULARY = 1 << 19
"""Logits of the rows that a CPU draws for together: their steps stay in its cache. Rows do not depend on others."""


def processed_logits(
    logits: Tensor, params: SamplingParams, *, seen: Tensor | None = None, chosen: Tensor | None = None
) -> Tensor:
    """Compute float32 logits [..., V] whose softmax is the sampling distribution; minus infinity if it can't draw one.

    Args:
        logits: [..., V] of the model, any floating dtype; never changed.
        seen: bool [..., V], the tokens that occur before this position (prompt and response). Needed, and read,
            only if ``params.repetition_penalty`` is not 1.
        chosen: int64 [...], tokens known to have been drawn. Top-k and top-p keep them even if rounding in
            another forward pass would put them just outside, which would make their log-probability minus infinity.

    Greedy sampling (temperature 0) reports the distribution at temperature 1, unfiltered.

    Raises:
        ValueError: a repetition penalty without ``seen``.
    """
    scores = logits.float()
    if params.repetition_penalty != 1.0:
        if seen is None:
            raise ValueError("repetition_penalty other than 1 needs `seen`: the tokens that came before each position")
        penalised = torch.where(scores > 0, scores / params.repetition_penalty, scores * params.repetition_penalty)
        scores = torch.where(seen, penalised, scores)
    if params.temperature == 0.0:
        return scores
    if params.temperature != 1.0:
        scores = scores / params.temperature
    vocabulary = scores.shape[-1]
    if 0 < params.top_k < vocabulary:
        threshold = scores.topk(params.top_k, dim=-1).values[..., -1:]
        scores = _keep(scores, scores >= threshold, chosen)
    if params.top_p < 1.0:
        scores = _keep(scores, _nucleus(scores, params.top_p), chosen)
    return scores


def without(logits: Tensor, excluded: Sequence[int]) -> Tensor:
    """``logits`` [..., V] with minus infinity at the ids ``excluded``, which are outside of the distribution."""
    if not excluded:
        return logits
    return logits.index_fill(-1, torch.tensor(excluded, device=logits.device), float("-inf"))


def draw(
    logits: Tensor, params: SamplingParams, uniforms: Tensor, *, seen: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Draw tokens int64 [B], with log-probabilities float32 [B], from ``logits`` [B, V]; a uniform float64 [B] a row.

    The token is where the cumulative distribution crosses the uniform number. So equal logits and equal numbers
    give equal tokens whatever else is in the batch. Sampling and log-probability use one and the same softmax.
    """
    rows = max(1, ROWS_OF_VOCABULARY // logits.shape[-1])
    if logits.device.type != "cpu" or logits.shape[0] <= rows:
        return _draw(logits, params, uniforms, seen)
    parts = [
        _draw(logits[i : i + rows], params, uniforms[i : i + rows], None if seen is None else seen[i : i + rows])
        for i in range(0, logits.shape[0], rows)
    ]
    return torch.cat([tokens for tokens, _ in parts]), torch.cat([logprobs for _, logprobs in parts])


def _draw(logits: Tensor, params: SamplingParams, uniforms: Tensor, seen: Tensor | None) -> tuple[Tensor, Tensor]:
    """:func:`draw` for rows that are worked on together."""
    scores = processed_logits(logits, params, seen=seen)
    shifted = scores - scores.amax(dim=-1, keepdim=True)
    if params.temperature == 0.0:
        tokens = scores.argmax(dim=-1)
        total = shifted.exp().sum(dim=-1)
    else:
        tokens, total = _invert(shifted, uniforms)
    logprobs = shifted.gather(-1, tokens[:, None]).squeeze(-1) - total.float().log()
    return tokens, logprobs


def invert(logprobs: Tensor, uniforms: Tensor) -> Tensor:
    """Find tokens int64 [B] where the cumulative distribution of ``logprobs`` [B, V] crosses ``uniforms`` float64
    [B]."""
    rows = max(1, ROWS_OF_VOCABULARY // logprobs.shape[-1])
    parts = zip(logprobs.split(rows), uniforms.split(rows), strict=True)
    return torch.cat([_invert(part, numbers)[0] for part, numbers in parts])


def _invert(shifted: Tensor, uniforms: Tensor) -> tuple[Tensor, Tensor]:
    """Find where the cumulative sum of ``exp(shifted)`` [B, V] first exceeds ``uniforms`` [B] x its total: int64 [B].

    The second result is the total, float64 [B]. Sums are in float64, or a long vocabulary would lose the small
    probabilities at its end. They are taken over blocks first, so that only one block needs a running sum.
    """
    rows, vocabulary = shifted.shape
    blocks = -(-vocabulary // _BLOCK)
    weights = shifted.new_zeros(rows, blocks * _BLOCK)
    torch.exp(shifted, out=weights[:, :vocabulary])
    blocked = weights.view(rows, blocks, _BLOCK)
    sums = blocked.sum(dim=-1, dtype=torch.float64).cumsum(dim=-1)
    total = sums[:, -1:]
    target = uniforms[:, None] * total
    block = torch.searchsorted(sums, target, right=True).clamp_(max=blocks - 1)
    before = torch.where(block > 0, sums.gather(1, (block - 1).clamp_(min=0)), 0.0)
    within = blocked.gather(1, block[:, :, None].expand(-1, 1, _BLOCK)).squeeze(1).cumsum(dim=-1, dtype=torch.float64)
    # Just below the block's own sum, which rounding may make smaller than the difference of the running sums: the token
    # found always has a weight above zero.
    rest = torch.minimum(target - before, torch.nextafter(within[:, -1:], torch.zeros_like(target)))
    token = block * _BLOCK + torch.searchsorted(within, rest, right=True)
    return token.squeeze(-1), total.squeeze(-1)


def _nucleus(scores: Tensor, top_p: float) -> Tensor:
    """Bool [..., V]: the smallest set of likeliest tokens whose probabilities reach ``top_p``, and all their equals."""
    normaliser = scores.logsumexp(dim=-1, keepdim=True)
    # Sorting a whole vocabulary is by far the costliest step; the nucleus rarely needs more than its head.
    for size in (min(_HEAD, scores.shape[-1]), scores.shape[-1]):
        ordered = scores.topk(size, dim=-1).values
        probabilities = (ordered - normaliser).exp()
        reached = probabilities.cumsum(dim=-1)
        if bool((reached[..., -1] >= top_p).all()):
            break
    inside = reached - probabilities < top_p
    inside[..., 0] = True
    threshold = ordered.masked_fill(~inside, float("inf")).amin(dim=-1, keepdim=True)
    return scores >= threshold


def _keep(scores: Tensor, kept: Tensor, chosen: Tensor | None) -> Tensor:
    """Return ``scores`` with minus infinity where ``kept`` is false, except at ``chosen``."""
    if chosen is not None:
        kept = kept.scatter(-1, chosen[..., None], True)
    return scores.masked_fill(~kept, float("-inf"))
