"""Noise for decisions, as numpy arrays.

While stepping only actions are needed. Log-probabilities and values come afterwards, from one evaluation of all
timesteps together, which costs a small policy a fraction of computing them at every step; a large one returns them
with its actions (`interfaces.DecidingPolicy`).
"""

from __future__ import annotations

import numpy as np

from rlinf.base.random_streams import stream_seed


class NoiseStream:
    """Noise of one sub-environment or one episode: a function of its keys and of how often it was drawn from, of
    nothing else."""

    def __init__(self, kind: str, size: int, seed: int, *keys: int | str) -> None:
        self._generator = np.random.Generator(np.random.Philox(stream_seed(seed, *keys)))
        self._kind = kind
        self._size = size

    def draw(self, decisions: int) -> np.ndarray:
        """[decisions, noise_size] float32, for the next decisions."""
        shape = (decisions, self._size)
        if self._kind == "uniform":
            return self._generator.random(shape, dtype=np.float32)
        return self._generator.standard_normal(shape, dtype=np.float32)
