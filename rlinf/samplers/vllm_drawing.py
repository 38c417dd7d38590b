"""How vLLM draws tokens on a CPU, inside its worker: one uniform number a row instead of a random number per token.

vLLM's own kernel there makes a Gumbel variate for every entry of the vocabulary, one after another, and counts the rank
of the token drawn, which nobody reads: a quarter of the time of a step of SmolLM2 (135M parameters, 49,152 tokens).
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from rlinf.models.distribution import invert

if TYPE_CHECKING:
    from vllm.v1.outputs import LogprobsTensors


def draw_by_inversion(sampler: Any) -> None:
    """Gives ``sampler``, a ``vllm.v1.sample.sampler.Sampler`` of a CPU worker, the faster way to draw."""
    chooser = sampler.topk_topp_sampler
    chooser.forward = types.MethodType(_choose, chooser)
    sampler.gather_logprobs = _gather_logprobs


def _choose(
    self: Any, logits: Tensor, generators: dict[int, torch.Generator], k: Tensor | None, p: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Tokens [B] and log-probabilities [B, V] of the distribution that is left by top-k and top-p.

    The signature is that of vLLM's ``TopKTopPSampler.forward``; a request's own generator gives its uniform number.
    """
    from vllm.v1.sample.ops.topk_topp_sampler import apply_top_k_top_p

    logprobs = apply_top_k_top_p(logits, k, p).log_softmax(dim=-1, dtype=torch.float32)
    uniforms = torch.rand(len(logprobs), dtype=torch.float64)
    for row, generator in generators.items():
        uniforms[row] = torch.rand((), dtype=torch.float64, generator=generator)
    return invert(logprobs, uniforms), logprobs


def _gather_logprobs(logprobs: Tensor, num_logprobs: int, token_ids: Tensor) -> LogprobsTensors:
    """Log-probabilities of the tokens drawn alone: the others and the ranks, 0 here, are asked for by nobody."""
    from vllm.v1.outputs import LogprobsTensors

    tokens = token_ids[:, None]
    return LogprobsTensors(tokens.to(torch.int32), logprobs.gather(-1, tokens), torch.zeros_like(token_ids))
