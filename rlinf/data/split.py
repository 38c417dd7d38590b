"""Cuts many things in order into portions: of a limited size for messages, of even counts for workers."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import TypeVar

T = TypeVar("T")


def split_by_size(sized: Iterable[tuple[T, int]], limit: int | None) -> list[list[T]]:
    """Cuts ``sized`` (item, size) into runs of at most ``limit`` (one item at least); into one run without a limit.

    >>> split_by_size([("a", 3), ("b", 3), ("c", 9), ("d", 1)], 7)
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


def split_evenly(count: int, parts: int) -> list[slice]:
    """``count`` rows in ``parts`` consecutive slices that differ by at most one row.

    >>> split_evenly(5, 2)
    [slice(0, 3, None), slice(3, 5, None)]
    """
    edges = [-(-count * part // parts) for part in range(parts + 1)]
    return [slice(start, end) for start, end in itertools.pairwise(edges)]
