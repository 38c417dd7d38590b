"""How large vLLM's key-value cache is on a CPU, where it is no share of a device's memory."""

from __future__ import annotations

from rlinf.config.machine import memory_bytes
from rlinf.config.plan.architecture import decoder_of
from rlinf.config.schema import PolicyConfig

_LEAST_MB = 64
_LARGEST_SHARE = 8
"""Of the machine's memory, an eighth; pages that no response has reached are not taken from it."""


def cpu_cache_mb(model: str, *, tokens: int, bytes_per_value: int) -> int:
    """MiB that hold the keys and values of ``tokens`` tokens of the model in the folder ``model``.

    A cache that is too small shows as slowness: responses wait for others, or are dropped and computed again.
    """
    decoder = decoder_of(PolicyConfig(path=model))
    wanted = 0 if decoder is None else decoder.kv_cache_bytes(tokens, bytes_per_value) >> 20
    return max(_LEAST_MB, min(wanted, (memory_bytes() >> 20) // _LARGEST_SHARE))
