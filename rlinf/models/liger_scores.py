"""Log-probabilities of given tokens from hidden states by Liger Kernel, which keeps no logits (arXiv:2410.10989)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from rlinf.data.messages import SamplingParams
from rlinf.models.token_scores import covers


def liger_covers(head: object, sampling: SamplingParams) -> bool:
    """Return whether :func:`liger_logprobs` computes this distribution: a plain head, and no filter of tokens."""
    return covers(head, sampling) and sampling.top_k == 0 and sampling.top_p == 1.0


def liger_logprobs(hidden: Tensor, head: nn.Linear, tokens: Tensor, sampling: SamplingParams) -> Tensor:
    """Compute log-probabilities [S] float32 of ``tokens`` [S] after ``hidden`` [S, H]; differentiable.

    Matrix products are in autocast's dtype if that is on, otherwise in the head's; sums are float32.

    Raises:
        ModuleNotFoundError: the package liger-kernel is not installed.
    """
    from liger_kernel.chunked_loss.fused_linear_ppo import LigerFusedLinearPPOBase

    device = hidden.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else head.weight.dtype
    with torch.autocast(device, enabled=False):
        # As one row [1, S]: Liger streams over the tokens and over the vocabulary.
        scores: Tensor = LigerFusedLinearPPOBase.chunk_forward(
            hidden.to(dtype)[None],
            head.weight,
            tokens[None],
            bias=head.bias,
            temperature=sampling.temperature or 1.0,
        )
    return scores[0]
