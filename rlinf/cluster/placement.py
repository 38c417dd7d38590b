"""Which worker runs where: placement groups, bundles that groups share, and the arithmetic when they do not fit."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from rlinf.cluster.api import Resources
from rlinf.cluster.errors import PlacementError

_SHARERS = 8  # groups that can take turns on one GPU; each takes this part of it in Ray's accounting
_SETTLE_S = 3.0  # what Ray calls free lags behind workers that have just ended
_RESERVE_S = 15.0
_RESERVE_BUNDLE_S = 0.1  # a thousand bundles take longer than one
_NAMES_S = 120.0  # a process has to start on each node


@dataclass
class _Bundle:
    placed: PlacementGroup
    size: int
    gpus: float
    groups: int
    gpu_names: list[list[str]] = field(default_factory=list)
    """The GPUs of each bundle by their names on its node, where there are several of them."""


@dataclass(frozen=True)
class _Reserved:
    """A rank's reservation: Ray's actor options, and the GPUs that it sees (None: those that Ray shows it)."""

    options: dict[str, Any]
    visible_gpus: str | None = None


class RayPlacement:
    """The reservations of one driver."""

    def __init__(self) -> None:
        self._bundles: dict[str, _Bundle] = {}

    def reserve(self, group: str, n: int, resources: Resources) -> list[_Reserved]:
        """Reserve a seat for each rank.

        :raises PlacementError: no node, or not all nodes together, have what is requested.
        """
        if resources.bundle is not None and resources.gpus and resources.bundle_gpus > 1:
            return self._reserve_wide(group, n, resources)
        key = resources.bundle or f"group {group}"
        shared = resources.bundle is not None
        bundle = self._bundles.get(key)
        if bundle is None:
            gpus = float(bool(resources.gpus)) if shared else resources.gpus
            placed = _reserve(group, n, _need(resources.cpus, gpus), spread=resources.spread)
            bundle = self._bundles[key] = _Bundle(placed, n, resources.gpus, 0)
        self._check_sharing(group, bundle, resources)
        bundle.groups += 1
        gpus = 1 / _SHARERS if shared and resources.gpus else resources.gpus
        cpus = 0.0 if bundle.groups > 1 else resources.cpus
        return [
            _Reserved({"num_cpus": cpus, "num_gpus": gpus, "scheduling_strategy": _at(bundle, rank % bundle.size)})
            for rank in range(n)
        ]

    def _reserve_wide(self, group: str, n: int, resources: Resources) -> list[_Reserved]:
        """Ranks in bundles of several GPUs, of which each is shown its own.

        In Ray's accounting the bundle alone holds the GPUs: two parts of one GPU, as Ray would deal them out, could be
        parts of the same.
        """
        assert resources.bundle is not None
        taken = seats(n, gpus=resources.gpus, bundle_gpus=resources.bundle_gpus)
        size = taken[-1].bundle + 1
        bundle = self._bundles.get(resources.bundle)
        if bundle is None:
            width = resources.bundle_gpus
            ranks = sum(seat.bundle == 0 for seat in taken)
            placed = _reserve(group, size, _need(resources.cpus * ranks, width), spread=resources.spread)
            bundle = _Bundle(placed, size, width, 0)
            try:
                bundle.gpu_names = _names_of_gpus(group, bundle)
            except BaseException:
                remove_placement_group(placed)
                raise
            self._bundles[resources.bundle] = bundle
        self._check_sharing(group, bundle, resources)
        if size > bundle.size:
            raise PlacementError(
                f"{group}: {n} x {resources.gpus:g} GPUs need {size} bundles of {resources.bundle_gpus}, and "
                f"{resources.bundle!r} has {bundle.size}; start fewer, or give them GPUs of their own "
                "(cluster.placement: separate)"
            )
        bundle.groups += 1
        cpus = 0.0 if bundle.groups > 1 else resources.cpus
        return [
            _Reserved(
                {"num_cpus": cpus, "num_gpus": 0.0, "scheduling_strategy": _at(bundle, seat.bundle)},
                ",".join(bundle.gpu_names[seat.bundle][position] for position in seat.gpus),
            )
            for seat in taken
        ]

    def release(self, group: str, resources: Resources) -> None:
        """Give back what ``reserve`` took; a bundle goes with its last group."""
        key = resources.bundle or f"group {group}"
        bundle = self._bundles[key]
        bundle.groups -= 1
        if not bundle.groups:
            del self._bundles[key]
            remove_placement_group(bundle.placed)

    def _check_sharing(self, group: str, bundle: _Bundle, resources: Resources) -> None:
        if resources.gpus and not bundle.gpus:
            raise PlacementError(f"{group}: bundle {resources.bundle!r} was made without GPUs; spawn {group} first")
        if bundle.groups >= _SHARERS:
            raise PlacementError(
                f"{group}: {bundle.groups} groups share bundle {resources.bundle!r}, and {_SHARERS} can"
            )


def _at(bundle: _Bundle, index: int) -> PlacementGroupSchedulingStrategy:
    return PlacementGroupSchedulingStrategy(bundle.placed, placement_group_bundle_index=index)


def _names_of_gpus(group: str, bundle: _Bundle) -> list[list[str]]:
    """Return the names of each bundle's GPUs on its node, reported by a task that takes all of them."""
    remote_names = ray.remote(_gpu_names)
    tasks = [
        remote_names.options(num_cpus=0, num_gpus=bundle.gpus, scheduling_strategy=_at(bundle, index)).remote()
        for index in range(bundle.size)
    ]
    _, late = ray.wait(tasks, num_returns=len(tasks), timeout=_NAMES_S)
    if late:
        raise PlacementError(f"{group}: the GPUs of its bundles were not named within {_NAMES_S:g} s: was a node lost?")
    return ray.get(tasks)


def _gpu_names() -> list[str]:
    return sorted(ray.get_runtime_context().get_accelerator_ids()["GPU"])


def _need(cpus: float, gpus: float) -> dict[str, float]:
    # Ray wants every bundle to hold something.
    return {"CPU": max(cpus, 0.001)} | ({"GPU": gpus} if gpus else {})


def _reserve(group: str, n: int, need: dict[str, float], *, spread: bool) -> PlacementGroup:
    _check_fit(group, n, need)
    placed = placement_group([need] * n, strategy="SPREAD" if spread else "PACK")
    if not placed.wait(_RESERVE_S + n * _RESERVE_BUNDLE_S):
        remove_placement_group(placed)
        problem = "could not be placed: what is free lies scattered over nodes"
        raise PlacementError(f"{group}: {n} x ({_text(need)}) {problem}")
    return placed


def _check_fit(group: str, n: int, need: dict[str, float]) -> None:
    """Check that the cluster has room for the ranks.

    :raises PlacementError: at once when the cluster is too small, after a moment when it is taken."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    fitting = [node for node in nodes if all(node.get(kind, 0.0) >= amount for kind, amount in need.items())]
    if not fitting:
        largest = {kind: max((node.get(kind, 0.0) for node in nodes), default=0.0) for kind in need}
        raise PlacementError(
            f"{group}: a rank needs {_text(need)} on one node, and the largest of {len(nodes)} has {_text(largest)}"
        )
    for kind, amount in need.items():
        total = sum(node.get(kind, 0.0) for node in nodes)
        give_up = time.monotonic() + (_SETTLE_S if n * amount <= total else 0.0)
        while n * amount > (free := ray.available_resources().get(kind, 0.0)):
            if time.monotonic() > give_up:
                remedy = "share GPUs (cluster.placement=colocated), lower the GPUs of a worker, or start fewer workers"
                if kind == "CPU":
                    remedy = "lower cluster.cpus_per_worker (it limits nothing at run time) or start fewer workers"
                raise PlacementError(
                    f"{group}: {n} x {amount:g} = {n * amount:g} {kind} are needed, {free:g} of {total:g} are free; "
                    f"{remedy}"
                )
            time.sleep(0.1)


def _text(amounts: dict[str, float]) -> str:
    return " + ".join(f"{amount:g} {kind}" for kind, amount in amounts.items())


@dataclass(frozen=True)
class _Seat:
    """A rank's seat: the bundle, and the positions of its GPUs among those of the bundle."""

    bundle: int
    gpus: tuple[int, ...]


def seats(ranks: int, *, gpus: float, bundle_gpus: int) -> list[_Seat]:
    """Fill one bundle after another; a rank never reaches over the edge of its bundle, which lies on one node.

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
        _Seat(rank // per_bundle, tuple(range(rank % per_bundle * width, (rank % per_bundle + 1) * width)))
        for rank in range(ranks)
    ]
