"""Which step of an episode each frame of its film shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class FilmTrack:
    """An episode's part of a film."""

    tile: int
    """Its number in the grid, row by row."""
    grid: tuple[int, int]
    """Columns and rows of the grid."""
    fps: float
    """Frames of a second of the film."""
    knots: tuple[tuple[int, int], ...]
    """(frame, environment steps done), ascending; steps between two knots lie on a line, after the last they stay."""


def knots_of(steps: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Shorten the steps done at each frame to the corners of their line, from the last beginning of the episode on.

    An attempt that broke begins the episode again: what the film shows of it is left out.

    >>> knots_of([0, 1, 2, 3, 3, 3])
    ((0, 0), (3, 3), (5, 3))
    >>> knots_of([0, 2, 4, 0, 2, 3])
    ((3, 0), (4, 2), (5, 3))
    """
    first = max((frame for frame in range(1, len(steps)) if steps[frame] < steps[frame - 1]), default=0)
    rises = [later - earlier for earlier, later in zip(steps[first:], steps[first + 1 :], strict=False)]
    corners = [frame for frame in range(1, len(rises)) if rises[frame] != rises[frame - 1]]
    ends = [len(rises)] if rises else []
    return tuple((first + frame, steps[first + frame]) for frame in (0, *corners, *ends) if steps)
