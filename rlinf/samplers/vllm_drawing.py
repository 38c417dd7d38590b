"""How vLLM draws tokens on a CPU, inside its worker: one uniform number a row, not a random number per token.

vLLM's own kernel there makes a Gumbel variate for every entry of the vocabulary, one after another. It also
counts the rank of the token drawn, which is not used: a quarter of the time of a step of SmolLM2 (135M
parameters, 49,152 tokens). It also keeps the logits of all rows in 32 bits, and as many log-probabilities, of
which one a row is needed. Here rows are drawn for a few at a time, so that what is in between stays in the
cache.
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from rlinf.data.messages import SamplingParams
from rlinf.models.distribution import draw, invert

if TYPE_CHECKING:
    from vllm.v1.outputs import LogprobsTensors, SamplerOutput
    from vllm.v1.sample.metadata import SamplingMetadata


def draw_by_inversion(sampler: Any) -> None:
    """Give ``sampler``, a ``vllm.v1.sample.sampler.Sampler`` of a CPU worker, the faster way to draw."""
    sampler.forward = types.MethodType(_sample, sampler)
    chooser = sampler.topk_topp_sampler
    chooser.forward = types.MethodType(_choose, chooser)
    sampler.gather_logprobs = _gather_logprobs


def _sample(self: Any, logits: Tensor, sampling_metadata: SamplingMetadata, *others: Any) -> SamplerOutput:
    """Draw the tokens of a step; the signature is that of vLLM's ``Sampler.forward``.

    Rows with penalties are left to vLLM: it has what their responses contain so far.
    """
    from vllm.v1.outputs import SamplerOutput

    if not sampling_metadata.no_penalties:
        penalised: SamplerOutput = type(self).forward(self, logits, sampling_metadata, *others)
        return penalised
    uniforms = _uniforms(len(logits), sampling_metadata.generators)
    tokens, logprobs = torch.zeros(len(logits), dtype=torch.int64), torch.zeros(len(logits))
    for params, rows in _alike(sampling_metadata, len(logits)).items():
        together = len(rows) == len(logits)
        arguments = (logits, uniforms) if together else (logits[rows], uniforms[rows])
        tokens[rows], logprobs[rows] = draw(arguments[0], params, arguments[1])
    return SamplerOutput(tokens.to(torch.int32)[:, None], _one_each(tokens, logprobs[:, None]))


def _alike(sampling_metadata: SamplingMetadata, count: int) -> dict[SamplingParams, list[int]]:
    """Group the rows by distribution; without a tensor of its own a setting is off in every row."""
    columns = []
    for name, off in (("temperature", 0.0), ("top_k", 0), ("top_p", 1.0)):
        setting: Tensor | None = getattr(sampling_metadata, name)
        columns.append([off] * count if setting is None else setting.tolist())
    rows: dict[tuple[float, ...], list[int]] = {}
    for row, settings in enumerate(zip(*columns, strict=True)):
        rows.setdefault(settings, []).append(row)
    return {
        SamplingParams(max_new_tokens=1, temperature=temperature, top_k=int(top_k), top_p=top_p): indices
        for (temperature, top_k, top_p), indices in rows.items()
    }


def _uniforms(count: int, generators: dict[int, torch.Generator]) -> Tensor:
    """Draw one number a row, float64 [count], from the request's own generator if it has one."""
    uniforms = torch.rand(count, dtype=torch.float64)
    for row, generator in generators.items():
        uniforms[row] = torch.rand((), dtype=torch.float64, generator=generator)
    return uniforms


def _choose(
    self: Any, logits: Tensor, generators: dict[int, torch.Generator], k: Tensor | None, p: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Tokens [B] and log-probabilities [B, V] of the distribution that is left by top-k and top-p.

    The signature is that of vLLM's ``TopKTopPSampler.forward``; a request's own generator gives its uniform number.
    """
    from vllm.v1.sample.ops.topk_topp_sampler import apply_top_k_top_p

    logprobs = apply_top_k_top_p(logits, k, p).log_softmax(dim=-1, dtype=torch.float32)
    return invert(logprobs, _uniforms(len(logprobs), generators)), logprobs


def _gather_logprobs(logprobs: Tensor, num_logprobs: int, token_ids: Tensor) -> LogprobsTensors:
    """Return log-probabilities of the tokens drawn alone: the others and the ranks, 0 here, are not used."""
    return _one_each(token_ids, logprobs.gather(-1, token_ids[:, None]))


def _one_each(tokens: Tensor, logprobs: Tensor) -> LogprobsTensors:
    from vllm.v1.outputs import LogprobsTensors

    return LogprobsTensors(tokens[:, None].to(torch.int32), logprobs, torch.zeros_like(tokens))
