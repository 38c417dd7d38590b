"""Which ranks of a learner send its weights, and in what order.

The first rank that holds some of the weights is their source: the first of each pipeline stage, and of the ranks with
different experts each. Weights travel in parts, each from one source. Parts are numbered over all sources in turn, so
that a receiver takes from all of them at the same rate, and always in the same order.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from rlinf.data.split import split_by_size

T = TypeVar("T")

MOST = 16
"""Sources at most: where weights are broadcast, a receiver is in a process group with each."""


def sources(holders: Iterable[int]) -> dict[int, int]:
    """Who sends what each rank in ``holders`` is the first to hold: that rank, or of more than `MOST` a neighbour.

    >>> sources([4, 0, 0])
    {0: 0, 4: 4}
    >>> sources(range(17))[16], sources(range(17))[15]
    (16, 14)
    """
    ranks = sorted(set(holders))
    return {rank: ranks[index - index % together(len(ranks))] for index, rank in enumerate(ranks)}


def together(holders: int) -> int:
    """Return the number of ranks that share a source, of ``holders`` in all."""
    return -(-holders // MOST)


def parts(sized: Mapping[int, Iterable[tuple[T, int]]], limit: int | None) -> list[tuple[int, list[T]]]:
    """(source, its items) of each part, of the items (item, size) of each source.

    A round, in which every source gives one part, has at most ``limit`` (one item each at least).

    >>> parts({0: [("a", 3), ("b", 3)], 4: [("c", 3), ("d", 1), ("e", 9)]}, 8)
    [(0, ['a']), (4, ['c', 'd']), (0, ['b']), (4, ['e'])]
    """
    share = None if limit is None else limit // len(sized)
    runs = [[(source, run) for run in split_by_size(items, share)] for source, items in sorted(sized.items())]
    return [part for turn in itertools.zip_longest(*runs) for part in turn if part is not None]


def rounds(order: Sequence[int]) -> list[list[int]]:
    """List the numbers of the parts that come from different sources in turn; ``order`` has the source of each part.

    >>> rounds([0, 4, 0, 4, 4])
    [[0, 1], [2, 3], [4]]
    """
    results: list[list[int]] = []
    for part, source in enumerate(order):
        if not results or source in {order[other] for other in results[-1]}:
            results.append([])
        results[-1].append(part)
    return results
