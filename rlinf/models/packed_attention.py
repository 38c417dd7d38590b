"""Attention over a :class:`~rlinf.models.packing.Packing`, as an attention function of transformers.

Linear layers receive packed tokens only. For the attention itself the rows form a rectangle. Prompts are
separate from blocks of similar responses. So PyTorch's fused kernels run on any device.
"""

from __future__ import annotations

import threading
from contextlib import nullcontext

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout as dropout_
from torch.nn.functional import scaled_dot_product_attention

from rlinf.models.architecture import PolicyError
from rlinf.models.packing import Packing

NAME = "rlinf_packed"


_layers = threading.local()


def layers_attended() -> int:
    """Return how many layers have attended over packed rows in this thread: a model's own attention would mix them."""
    return getattr(_layers, "attended", 0)


def register() -> None:
    """Register ``NAME`` with transformers (again is harmless)."""
    from transformers import AttentionInterface, AttentionMaskInterface

    AttentionInterface.register(NAME, packed_attention)
    AttentionMaskInterface.register(NAME, _no_mask)


def _no_mask(*_args: object, **_kwargs: object) -> None:
    """Return no mask: the packing holds which tokens attend to which, so transformers need not build one."""


def packed_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    packing: Packing | None = None,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    position_bias: Tensor | None = None,
    position_ids: Tensor | None = None,
    **_transformers: object,
) -> tuple[Tensor, None]:
    """query [1, H, N, D], key and value [1, H_kv, N, D] -> [1, N, H, D].

    The signature is transformers' own; what else it passes does not concern a forward pass without cache.
    ``sliding_window``: number of tokens that each one attends to, itself included. ``softcap``: bound of the scores
    (Gemma 2, arXiv:2408.00118, section 2).

    Raises:
        PolicyError: the model hands no packing down, or adds attention sinks or a bias to the scores.
    """
    if packing is None or s_aux is not None or position_bias is not None:
        raise PolicyError(
            f"learner.pack: {type(module).__name__} does more than packed rows allow. Set learner.pack: false."
        )
    _layers.attended = layers_attended() + 1
    grouped = query.shape[1] != key.shape[1]
    if sliding_window is not None and sliding_window > int(packing.positions.max()):
        sliding_window = None  # no row is longer: PyTorch's causal kernel needs no mask
    dtype, device = query.dtype, query.device.type
    if device == "cpu" and dtype != torch.float64:
        # PyTorch's fused attention of a CPU takes three times as long for its backward pass in 16 bits.
        query, key, value = query.float(), key.float(), value.float()

    def attend(queries: Tensor, keys: Tensor, mask: Tensor | None) -> Tensor:
        own, other, contents = _rows(query, queries), _rows(key, keys), _rows(value, keys)
        if grouped and device != "cpu":
            # A GPU has no fused kernel for a mask, or for float32, with grouped heads: PyTorch would keep all scores.
            share = query.shape[1] // key.shape[1]
            other, contents = other.repeat_interleave(share, dim=1), contents.repeat_interleave(share, dim=1)
        if sliding_window is not None:
            reach = packing.positions[queries][:, None, :, None] - packing.positions[keys][:, None, None, :]
            causal = torch.ones_like(reach, dtype=torch.bool).tril() if mask is None else mask
            mask = causal & (reach < sliding_window)
        if softcap is not None:
            return _capped(own, other, contents, mask, scaling, softcap, dropout)
        return scaled_dot_product_attention(
            own,
            other,
            contents,
            attn_mask=mask,
            dropout_p=dropout,
            is_causal=mask is None,
            scale=scaling,
            enable_gqa=own.shape[1] != other.shape[1],
        )

    # Autocast would make 16 bits of them again.
    with torch.autocast(device, enabled=False) if device == "cpu" else nullcontext():
        parts = [_tokens(attend(packing.prompt_index, packing.prompt_index, None), packing.prompt_filled)]
        for block in packing.blocks:
            parts.append(_tokens(attend(block.index, block.key_index, block.attention), block.filled))
    out = torch.cat(parts).to(dtype)
    return out[None], None


def _capped(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scaling: float | None, cap: float, dropout: float
) -> Tensor:
    """Compute attention with scores in (-cap, cap): no fused kernel of PyTorch has that.

    Shapes as of ``scaled_dot_product_attention``; without ``mask`` it is causal.
    """
    share = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(share, dim=1), value.repeat_interleave(share, dim=1)
    scores = query @ key.transpose(-1, -2) * (query.shape[-1] ** -0.5 if scaling is None else scaling)
    scores = cap * torch.tanh(scores / cap)
    attends = torch.ones_like(scores, dtype=torch.bool).tril() if mask is None else mask
    weights = scores.masked_fill(~attends, -torch.inf).softmax(dim=-1)
    return dropout_(weights, dropout, training=dropout > 0) @ value


def _rows(packed: Tensor, index: Tensor) -> Tensor:
    """[1, H, N, D] and positions [R, C] -> [R, H, C, D]."""
    # The gradient of `index_select` costs a third less than that of indexing, and is the same sum in the same order.
    rows = packed[0].transpose(0, 1).index_select(0, index.flatten())
    return rows.unflatten(0, index.shape).transpose(1, 2)


def _tokens(rows: Tensor, filled: Tensor) -> Tensor:
    """[R, H, C, D] and the positions [n] of its tokens -> [n, H, D]."""
    return rows.transpose(1, 2).flatten(0, 1).index_select(0, filled)
