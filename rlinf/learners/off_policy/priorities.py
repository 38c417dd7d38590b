"""Proportional prioritised replay (Schaul et al., arXiv:1511.05952): a sum tree over the positions of a ring buffer.

A transition is drawn with probability p_i / sum p, p_i = (|error_i| + 1e-6)^exponent; its loss is weighted by
(n p_i / sum p)^-correction, divided by the largest such weight of the sample.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Generator, Tensor

_LEAST_ERROR = 1e-6


class Priorities:
    """Priorities of ``size`` transitions; 0 is never drawn."""

    def __init__(self, size: int, exponent: float) -> None:
        self._first = 1 << max(size - 1, 1).bit_length()
        self._tree = np.zeros(2 * self._first)  # node i is the sum of nodes 2 i and 2 i + 1; the leaves come last
        self._exponent = exponent
        self.largest = 1.0
        """What a transition gets that no update has seen."""

    def add(self, indices: np.ndarray, valid: np.ndarray) -> None:
        """Add new transitions at ``indices`` [n]; those that are not ``valid`` [n] are never drawn."""
        self._set(indices, np.where(valid, self.largest, 0.0))

    def update(self, indices: Tensor, errors: Tensor) -> None:
        """Update priorities with the absolute errors [n] of transitions that were drawn."""
        priorities = (errors.double().numpy() + _LEAST_ERROR) ** self._exponent
        self.largest = max(self.largest, float(priorities.max(initial=0.0)))
        self._set(indices.numpy(), priorities)

    def _set(self, indices: np.ndarray, priorities: np.ndarray) -> None:
        nodes = indices + self._first
        self._tree[nodes] = priorities
        while nodes[0] > 1:
            nodes = nodes // 2
            self._tree[nodes] = self._tree[2 * nodes] + self._tree[2 * nodes + 1]

    def draw(self, count: int, generator: Generator | None) -> Tensor:
        """[count] indices, one from each of ``count`` equal parts of the sum."""
        drawn = torch.rand(count, dtype=torch.float64, generator=generator).numpy()
        left_over = (np.arange(count) + drawn) / count * self._tree[1]
        nodes = np.ones(count, dtype=np.int64)
        while nodes[0] < self._first:
            left, right = self._tree[2 * nodes], self._tree[2 * nodes + 1]
            turn = (left_over >= left) & (right > 0.0)
            left_over = np.where(turn, left_over - left, left_over)
            nodes = 2 * nodes + turn
        return torch.from_numpy(nodes - self._first)

    def weights(self, indices: Tensor, held: int, correction: float) -> Tensor:
        """[n] float32 importance weights of drawn ``indices`` among ``held`` transitions."""
        shares = self._tree[indices.numpy() + self._first] / self._tree[1]
        weights = (held * shares) ** -correction
        return torch.from_numpy((weights / weights.max()).astype(np.float32))

    def values(self, size: int) -> np.ndarray:
        """[size] priorities, to be saved."""
        return self._tree[self._first : self._first + size].copy()

    def load(self, values: np.ndarray, largest: float) -> None:
        """Load what :meth:`values` gave."""
        self.largest = largest
        self._set(np.arange(len(values)), values)
