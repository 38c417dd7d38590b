"""Log-probabilities and entropies of given tokens from hidden states, a bounded share of the logits at a time.

The logits of 16,384 tokens over a vocabulary of 49,152 fill 3.2 GB, and plain autograd keeps them several
times over. Here each chunk of tokens is multiplied with the output embedding, reduced to two numbers a token,
and dropped. The backward pass makes it again and overwrites it with the gradient of the logits. This is
Liger Kernel's linear cross-entropy (arXiv:2410.10989), with the gradient of each token known only afterwards.
On a CPU a few hundred MiB of logits are kept instead: memory is cheaper there than another product.
With p the distribution, l its logarithm, H its entropy, y the token:

    d log p(y) / d logits = onehot(y) - p            dH / d logits = -p (l + H)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from rlinf.data.messages import SamplingParams
from rlinf.models.distribution import processed_logits

_CHUNK_ELEMENTS = {"cpu": 1 << 24, "cuda": 1 << 27}
"""Logits of one chunk, which is one matrix product: 64 MiB on a CPU; a GPU needs more rows for its products."""

_KEPT_ELEMENTS = {"cpu": 1 << 26}
"""Logits of a call that the backward pass finds again instead of computing them twice: 256 MiB; elsewhere none."""

_BLOCK_ELEMENTS = {"cpu": 1 << 19, "cuda": 1 << 27}
"""Logits that go through the steps of a softmax together. On a CPU they stay in its cache from one step to the next."""


def chunk_elements(device_type: str) -> int:
    """Return the number of logits that a chunk has at most; a call with no more of them is not cut."""
    return _CHUNK_ELEMENTS.get(device_type, _CHUNK_ELEMENTS["cuda"])


def kept_elements(device_type: str) -> int:
    """Return the number of logits up to which a call keeps them for its backward pass."""
    return _KEPT_ELEMENTS.get(device_type, 0)


def covers(head: Any, sampling: SamplingParams) -> bool:
    """Return whether :func:`token_scores` can take ``head``: a linear layer without adapters or hooks of its own.

    A repetition penalty changes single logits, which this backward pass does not support.
    """
    hooked = any(getattr(head, name, None) for name in ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks"))
    return type(head) is nn.Linear and not hooked and sampling.repetition_penalty == 1.0


@dataclass(frozen=True)
class _Products:
    """Number formats of the matrix products, rows of a chunk, and whether its logits are kept for the backward pass."""

    logits: torch.dtype
    gradient: torch.dtype
    rows: int
    kept: bool


def token_scores(
    hidden: Tensor,
    head: nn.Linear,
    tokens: Tensor,
    sampling: SamplingParams,
    *,
    with_entropy: bool,
    dtype: torch.dtype | None = None,
) -> tuple[Tensor, Tensor]:
    """Compute log-probabilities and entropies [S] float32 of ``tokens`` [S] after ``hidden`` [S, H].

    Entropies are 0 without ``with_entropy``. Logits are products in ``dtype``: by default autocast's if that is on,
    otherwise the head's. If the default is bfloat16, so are products with the gradient of logits in ``dtype``: the
    layers below continue in it. Everything else is float32.
    """
    device = hidden.device.type
    usual = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else head.weight.dtype
    logits = usual if dtype is None else dtype
    learns = torch.is_grad_enabled() and (hidden.requires_grad or head.weight.requires_grad)
    products = _Products(
        logits=logits,
        # Small gradients would be 0 in float16.
        gradient=usual if usual == torch.bfloat16 else logits,
        rows=max(1, chunk_elements(device) // head.out_features),
        kept=learns and hidden.shape[0] * head.out_features <= kept_elements(device),
    )
    with torch.autocast(device, enabled=False):
        scores: tuple[Tensor, Tensor] = _TokenScores.apply(
            hidden, head.weight, head.bias, tokens, sampling, with_entropy, products
        )
    return scores


class _TokenScores(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        tokens: Tensor,
        sampling: SamplingParams,
        with_entropy: bool,
        products: _Products,
    ) -> tuple[Tensor, Tensor]:
        head, shift = weight.to(products.logits), None if bias is None else bias.to(products.logits)
        positions = hidden.shape[0]
        logprobs, normalisers = (torch.empty(positions, device=hidden.device) for _ in range(2))
        entropies = torch.zeros(positions, device=hidden.device)
        kept: list[Tensor] = []
        for start in range(0, positions, products.rows):
            logits = nn.functional.linear(hidden[start : start + products.rows].to(products.logits), head, shift)
            if products.kept:
                kept.append(logits)
            for block in _blocks(logits):
                part = slice(start + block.start, start + block.stop)
                own = logits[block].clone() if products.kept else logits[block]  # which the statistics overwrite
                scores = processed_logits(own, sampling, chosen=tokens[part])
                logprobs[part], normalisers[part], entropy = _statistics(scores, tokens[part], with_entropy)
                if entropy is not None:
                    entropies[part] = entropy
        ctx.save_for_backward(hidden, weight, bias, tokens, normalisers, entropies)
        ctx.sampling, ctx.with_entropy, ctx.products, ctx.kept = sampling, with_entropy, products, kept
        return logprobs, entropies

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, of_logprobs: Tensor, of_entropies: Tensor) -> tuple[Tensor | None, ...]:
        hidden, weight, bias, tokens, normalisers, entropies = ctx.saved_tensors
        to_hidden, to_weight, to_bias = ctx.needs_input_grad[:3]
        products, kept = ctx.products, ctx.kept
        ctx.kept = []  # overwritten below: another backward pass makes them again
        head, shift = weight.to(products.logits), None if bias is None else bias.to(products.logits)
        narrow = weight.to(products.gradient)
        of_hidden = torch.empty_like(hidden) if to_hidden else None
        of_weight = torch.zeros(weight.shape, device=weight.device) if to_weight else None
        of_bias = torch.zeros_like(bias, dtype=torch.float32) if to_bias else None
        for number, start in enumerate(range(0, hidden.shape[0], products.rows)):
            chunk = slice(start, start + products.rows)
            # The logits, which become their gradient.
            gradient = kept[number] if kept else nn.functional.linear(hidden[chunk].to(products.logits), head, shift)
            for block in _blocks(gradient):
                part = slice(start + block.start, start + block.stop)
                scores = processed_logits(gradient[block], ctx.sampling, chosen=tokens[part])
                logs = scores.sub_(normalisers[part, None])
                exact = _gradient_of_logits(
                    logs,
                    tokens[part],
                    of_logprobs[part],
                    of_entropies[part] if ctx.with_entropy else None,
                    entropies[part],
                    ctx.sampling,
                )
                if of_bias is not None:
                    of_bias += exact.sum(0)
                gradient[block] = exact
            inputs, gradient = hidden[chunk].to(products.gradient), gradient.to(products.gradient)
            if of_hidden is not None:
                of_hidden[chunk] = gradient @ narrow
            if of_weight is not None:
                # Add gradient [C, V] x inputs [C, H] to the float32 ``total`` [V, H].
                total = of_weight
                if inputs.dtype == torch.float32:
                    total.addmm_(gradient.t(), inputs)
                else:
                    # Products of 16-bit matrices are much faster on a CPU where the transposed one is laid out again.
                    total += gradient.t().contiguous() @ inputs
        return (
            of_hidden,
            None if of_weight is None else of_weight.to(weight.dtype),
            None if of_bias is None else of_bias.to(bias.dtype),
            *[None] * 4,
        )


def _blocks(logits: Tensor) -> list[slice]:
    """Rows of ``logits`` [C, V] that are worked on together."""
    limit = _BLOCK_ELEMENTS.get(logits.device.type, _BLOCK_ELEMENTS["cuda"])
    rows = max(1, limit // logits.shape[1])
    return [slice(start, min(start + rows, logits.shape[0])) for start in range(0, logits.shape[0], rows)]


def _statistics(scores: Tensor, tokens: Tensor, with_entropy: bool) -> tuple[Tensor, Tensor, Tensor | None]:
    """Log-probabilities of ``tokens`` [C], normalisers and entropies [C] of scores [C, V], whose memory it takes."""
    highest = scores.amax(-1, keepdim=True)
    shifted = scores.sub_(highest)
    chosen = shifted.gather(-1, tokens[:, None])[:, 0]
    # Minus infinity is what can't be drawn: its probability 0 counts for nothing.
    finite = shifted.nan_to_num(nan=torch.nan, neginf=0.0) if with_entropy else None
    weights = shifted.exp_()
    total = weights.sum(-1)
    log_total = total.log()
    entropy = None if finite is None else log_total - finite.mul_(weights).sum(-1) / total
    return chosen - log_total, highest[:, 0] + log_total, entropy


def _gradient_of_logits(
    logs: Tensor,
    tokens: Tensor,
    of_logprobs: Tensor,
    of_entropies: Tensor | None,
    entropies: Tensor,
    sampling: SamplingParams,
) -> Tensor:
    """[C, V] from log-probabilities [C, V], whose memory it may take, and the gradients [C] of the two results."""
    if of_entropies is None:
        gradient = logs.exp_().mul_(-of_logprobs[:, None])
    else:
        gradient = logs.exp()
        factor = (
            logs.nan_to_num_(nan=torch.nan, neginf=0.0)
            .add_(entropies[:, None])
            .mul_(-of_entropies[:, None])
            .sub_(of_logprobs[:, None])
        )
        gradient.mul_(factor)
    gradient.scatter_add_(-1, tokens[:, None], of_logprobs[:, None])
    return gradient if sampling.temperature in (0.0, 1.0) else gradient.div_(sampling.temperature)
