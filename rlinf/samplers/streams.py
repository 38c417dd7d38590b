"""Random numbers that belong to a response: number ``i`` of a stream is a function of the stream's key and ``i`` alone.

A stream per response, as a generator object, would make sampling depend on who shares the batch or cost a Python call
per row and token. Here a stream is a counter passed through a mixing function (SplitMix64, by Steele, Lea and Flood),
so one vectorised call gives the numbers of any rows at any positions, in any order.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_GAMMA = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1


def stream_key(seed: int, key: Sequence[int], sample_index: int) -> int:
    """Compute the 64-bit key of the stream of ``sample_index`` of the request with ``key`` (any integers)."""
    state = _GAMMA
    for part in (seed, *key, sample_index):
        # The length of the key is part of it through the number of rounds; negative parts wrap to 64 bits.
        state = _mix_int(((state + _GAMMA) & _MASK) ^ _mix_int(part & _MASK))
    return state


def uniforms(keys: NDArray[np.uint64], starts: NDArray[np.uint64], count: int) -> NDArray[np.float64]:
    """Numbers ``starts[i] .. starts[i] + count`` of each stream: float64 [B, count] in [0, 1).

    ``keys`` are uint64 [B]; ``starts`` uint64 [B] count tokens of the response.
    """
    counters: NDArray[np.uint64] = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(_GAMMA)
    origins: NDArray[np.uint64] = keys + starts * np.uint64(_GAMMA)
    bits: NDArray[np.uint64] = origins[:, None] + counters
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    bits = bits ^ (bits >> np.uint64(31))
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _mix_int(value: int) -> int:
    """Compute the same mixing function on a Python integer of 64 bits."""
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)
