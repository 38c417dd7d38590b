"""Many things in order, in portions of a limited size: a message each would be slow, one for all too large."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

T = TypeVar("T")


def portions(sized: Iterable[tuple[T, int]], limit: int | None) -> list[list[T]]:
    """What is in ``sized`` (item, size), in runs of at most ``limit`` (one item at least); in one run without a limit.

    >>> portions([("a", 3), ("b", 3), ("c", 9), ("d", 1)], 7)
    [['a', 'b'], ['c'], ['d']]
    """
    runs: list[list[T]] = []
    held = 0
    for item, size in sized:
        if not runs or (limit is not None and held + size > limit):
            runs.append([])
            held = 0
        runs[-1].append(item)
        held += size
    return runs
