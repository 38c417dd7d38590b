"""How large vLLM's key-value cache and its blocks are on a CPU, where it is no share of a device's memory."""

from __future__ import annotations

from typing import Any

import torch

from rlinf.base.errors import UserError
from rlinf.base.machine import memory_bytes
from rlinf.models.loading import checkpoint_config

_LEAST_MB = 64
_LARGEST_SHARE = 8
"""Of the machine's memory, an eighth; pages that no response has reached are not taken from it."""
_USUAL_HEADS = (64, 128)
"""Sizes that spare `rlinf check` the seconds of importing vLLM."""


def cpu_block(dtype: str) -> int:
    """Tokens of a cache block with activations of ``dtype``, "bfloat16" or another.

    A group shares whole blocks of its prompt and computes the rest for every response, so small ones cost less. In
    16 bits vLLM's kernel for blocks of 16 is as fast as the one for 32, except on AMX, which has one of its own.
    """
    small = dtype == "bfloat16" and torch.backends.cpu.get_cpu_capability() == "AVX512"
    return 16 if small and not torch.cpu._is_amx_tile_supported() else 32


def allow_blocks_of_16() -> None:
    """Before an engine starts: its attention on a CPU declares multiples of 32 only, and has a kernel for 16."""
    from vllm.v1.attention.backend import MultipleOf
    from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend

    CPUAttentionBackend.get_supported_kernel_block_sizes = staticmethod(lambda _spec=None: [MultipleOf(16)])


def require_head_size(config: Any) -> None:
    """Raise UserError if vLLM's attention on a CPU has no kernel for the heads of a model of this configuration."""
    size = _head_size(config.get_text_config())
    if size in _USUAL_HEADS:
        return
    from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend

    sizes = CPUAttentionBackend.get_supported_head_sizes()
    if size not in sizes:
        raise UserError(
            f"rollout.sampler vllm: on a CPU its attention takes heads of {', '.join(map(str, sizes))} numbers, and "
            f"this model's have {size}. Set rollout.sampler: hf, or policy.architecture.num_attention_heads"
        )


def _head_size(config: Any) -> int:
    return getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads


def cpu_cache_mb(model: str, *, tokens: int, bytes_per_value: int) -> int:
    """MiB that hold the keys and values of ``tokens`` tokens of the model in the folder ``model``.

    A cache that is too small shows as slowness: responses wait for others, or are dropped and computed again.
    """
    config = checkpoint_config(model).get_text_config()
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    values = 2 * config.num_hidden_layers * heads * _head_size(config) * tokens
    return max(_LEAST_MB, min(values * bytes_per_value, memory_bytes() // _LARGEST_SHARE) >> 20)
