"""Attention for decoding with grouped key-value heads, without repeating keys and values for every query head.

transformers' scaled-dot-product path copies the whole cache once per token and query group whenever a mask is
given (2 to 8 times the cost of the attention itself on a CPU). A single new token has one query per head, so
the heads that share keys can take the positions of queries: the same arithmetic, no copy.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

from rlinf.samplers.slot_attention import running_window, slot_attention

NAME = "rlinf_grouped_sdpa"


def _grouped_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attention output [B, T, heads, head_dim]; the signature is transformers', whose extra arguments pass through.

    ``query`` is [B, heads, T, head_dim], ``key`` and ``value`` [B, kv_heads, S, head_dim], ``attention_mask``
    [B, 1, T, S] (bool or additive) or None. Anything but one token without dropout goes to transformers' own function.
    Tokens of a step over slots attend to their own (:func:`~rlinf.samplers.slot_attention.slot_attention`).
    """
    if (window := running_window()) is not None:
        return slot_attention(window, query, key, value, scaling), None
    rows, heads, positions, width = query.shape
    kv_heads = key.shape[1]
    if positions != 1 or heads == kv_heads or dropout or kwargs.get("position_bias") is not None:
        return sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **kwargs
        )
    grouped = query.reshape(rows, kv_heads, heads // kv_heads, width)
    output = torch.nn.functional.scaled_dot_product_attention(
        grouped, key, value, attn_mask=attention_mask, scale=scaling
    )
    return output.reshape(rows, 1, heads, value.shape[-1]), None


def use_grouped_attention(model: PreTrainedModel) -> None:
    """Lets a model that uses transformers' ``sdpa`` attention decode with :func:`_grouped_attention`."""
    if model.config._attn_implementation != "sdpa" or not getattr(model, "_supports_attention_backend", False):
        return
    AttentionInterface.register(NAME, _grouped_attention)
    AttentionMaskInterface.register(NAME, sdpa_mask)
    model.set_attn_implementation(NAME)
