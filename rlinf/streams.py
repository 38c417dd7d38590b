"""Random streams: every component, step and sample has its own seed, derived from the run's."""

from __future__ import annotations

import hashlib


def stream_seed(seed: int, *keys: int | str) -> int:
    """A 63-bit seed that depends on the run's seed and on every key, and on nothing else."""
    digest = hashlib.blake2b(repr((seed, *keys)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1
