"""Which GPUs each rank of a group has, where groups share bundles of several GPUs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Seat:
    """A rank's place: the bundle, and the positions of its GPUs among those of the bundle."""

    bundle: int
    gpus: tuple[int, ...]


def seats(ranks: int, *, gpus: float, bundle_gpus: int) -> list[Seat]:
    """Fills one bundle after another; a rank never reaches over the edge of its bundle, which lies on one node.

    Four learner ranks of one GPU and two engines of two share two bundles:

    >>> [(seat.bundle, seat.gpus) for seat in seats(4, gpus=1, bundle_gpus=2)]
    [(0, (0,)), (0, (1,)), (1, (0,)), (1, (1,))]
    >>> [(seat.bundle, seat.gpus) for seat in seats(2, gpus=2, bundle_gpus=2)]
    [(0, (0, 1)), (1, (0, 1))]

    Args:
        gpus: of a rank. A part of one GPU counts as one: groups take turns on it.

    Raises:
        ValueError: a bundle does not hold one rank.
    """
    width = max(1, int(gpus))
    per_bundle = bundle_gpus // width
    if not per_bundle:
        raise ValueError(f"a rank of {width} GPUs does not fit a bundle of {bundle_gpus}")
    return [
        Seat(rank // per_bundle, tuple(range(rank % per_bundle * width, (rank % per_bundle + 1) * width)))
        for rank in range(ranks)
    ]
