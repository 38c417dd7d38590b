"""How large vLLM's key-value cache is on a CPU, where it is no share of a device's memory."""

from __future__ import annotations

import os

from rlinf.models.loading import checkpoint_config

_LEAST_MB = 64
_LARGEST_SHARE = 8
"""Of the machine's memory, an eighth; pages that no response has reached are not taken from it."""


def cpu_cache_mb(model: str, *, tokens: int, bytes_per_value: int) -> int:
    """MiB that hold the keys and values of ``tokens`` tokens of the model in the folder ``model``.

    A cache that is too small shows as slowness: responses wait for others, or are dropped and computed again.
    """
    config = checkpoint_config(model).get_text_config()
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    head_size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    values = 2 * config.num_hidden_layers * heads * head_size * tokens
    return max(_LEAST_MB, min(values * bytes_per_value, _memory_bytes() // _LARGEST_SHARE) >> 20)


def _memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
