"""Quasi-static planar pushing: nothing moves unless it is pushed, and what is pushed stops at once.

That is the limit of high friction and low speed in which robots push things on tables: motion follows from contact
geometry alone, without masses or velocities. The table is the unit square. Bodies touch as discs, whatever their
outline is. One step moves the tip by at most :data:`REACH`, in which it cannot jump over anything.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

TIP_RADIUS = 0.045
BODY_RADIUS = 0.075
REACH = 0.06
"""Longest move of the tip in a step, table lengths along each axis."""
_SWEEPS = 4  # of contact resolution: chains of two or three bodies settle in as many
_TOLERANCE = 1e-9


@dataclass
class World:
    """Positions on the table, float64."""

    tip: np.ndarray
    """[2]"""
    bodies: np.ndarray
    """[n, 2] centres."""

    def move(self, action: np.ndarray) -> set[int]:
        """Move the tip by ``action`` [2] times :data:`REACH` (entries beyond [-1, 1] are cut).

        Returns the numbers of the bodies that it touched.
        """
        self.tip = _on_table(self.tip + REACH * np.clip(action, -1.0, 1.0), TIP_RADIUS)
        touched: set[int] = set()
        for _ in range(_SWEEPS):
            driven = self._push(touched)
            if not self._separate(driven) and not driven:
                break
        # What could not give way, at the table's edge, stops the tip.
        for body in self.bodies:
            back = self.tip - body
            depth = _overlap(back, TIP_RADIUS + BODY_RADIUS)
            if depth > 0:
                self.tip = _on_table(self.tip + _direction(back) * depth, TIP_RADIUS)
        return touched

    def _push(self, touched: set[int]) -> set[int]:
        """Move bodies out of the tip's way; return their numbers, which are added to ``touched``."""
        distance = TIP_RADIUS + BODY_RADIUS
        away = self.bodies - self.tip
        driven = set(np.nonzero((away * away).sum(axis=1) < (distance - _TOLERANCE) ** 2)[0].tolist())
        for body in driven:
            self.bodies[body] = _on_table(self.tip + _direction(away[body]) * distance, BODY_RADIUS)
        touched |= driven
        return driven

    def _separate(self, driven: set[int]) -> bool:
        """Separate overlapping pairs; return whether there were any. The one that the tip drives gives way last."""
        result = False
        for first, second in itertools.combinations(range(len(self.bodies)), 2):
            if second in driven:
                first, second = second, first
            if _overlap(self.bodies[second] - self.bodies[first], 2 * BODY_RADIUS) > _TOLERANCE:
                result = True
                self._give_way(second, first)
                self._give_way(first, second)
        return result

    def _give_way(self, body: int, other: int) -> None:
        """Move ``body`` out of ``other``, as far as the table goes."""
        away = self.bodies[body] - self.bodies[other]
        depth = max(0.0, _overlap(away, 2 * BODY_RADIUS))
        self.bodies[body] = _on_table(self.bodies[body] + _direction(away) * depth, BODY_RADIUS)


def _on_table(position: np.ndarray, radius: float) -> np.ndarray:
    return np.clip(position, radius, 1.0 - radius)


def _overlap(away: np.ndarray, distance: float) -> float:
    """How much less than ``distance`` the length of ``away`` [2] is."""
    return distance - float(np.sqrt(away @ away))


def _direction(away: np.ndarray) -> np.ndarray:
    """[2] of length 1; along x if two centres coincide."""
    length = float(np.sqrt(away @ away))
    return away / length if length > 1e-9 else np.array([1.0, 0.0])
