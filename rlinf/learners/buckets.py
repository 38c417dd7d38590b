"""Weights on their way to samplers in portions, so that no rank ever holds a second whole model."""

from __future__ import annotations

from collections.abc import Iterable


def cut(sizes: Iterable[tuple[str, int]], limit: int | None) -> list[list[str]]:
    """Names in order, in runs of at most ``limit`` bytes (one name at least); all in one run without a limit.

    >>> cut([("a", 3), ("b", 3), ("c", 9), ("d", 1)], 7)
    [['a', 'b'], ['c'], ['d']]
    """
    runs: list[list[str]] = [[]]
    held = 0
    for name, size in sizes:
        if runs[-1] and limit is not None and held + size > limit:
            runs.append([])
            held = 0
        runs[-1].append(name)
        held += size
    return runs
