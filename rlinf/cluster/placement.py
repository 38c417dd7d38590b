"""Which worker sits where: placement groups, bundles that groups share, and the arithmetic when they do not fit."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import ray
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from rlinf.cluster.api import Resources
from rlinf.cluster.errors import PlacementError

_SHARERS = 8  # groups that can take turns on one GPU; each takes this part of it in Ray's books
_SETTLE_S = 3.0  # what Ray calls free lags behind workers that have just ended
_PLACE_S = 15.0


@dataclass
class _Bundle:
    placed: PlacementGroup
    size: int
    gpus: float
    groups: int


class Placement:
    """The reservations of one driver."""

    def __init__(self) -> None:
        self._bundles: dict[str, _Bundle] = {}

    def reserve(self, group: str, n: int, resources: Resources) -> list[dict[str, Any]]:
        """Ray's actor options for each rank.

        :raises PlacementError: no node, or not all nodes together, have what is asked for.
        """
        key = resources.bundle or f"group {group}"
        shared = resources.bundle is not None
        if shared and resources.gpus > 1:
            raise PlacementError(
                f"{group}: bundle {resources.bundle!r} shares at most one GPU per rank, and {resources.gpus:g} are "
                f"asked for; give each rank one GPU, or the group GPUs of its own"
            )
        bundle = self._bundles.get(key)
        if bundle is None:
            bundle = _Bundle(_place(group, n, resources, whole_gpus=shared), n, resources.gpus, 0)
            self._bundles[key] = bundle
        self._check_sharing(group, bundle, resources)
        bundle.groups += 1
        gpus = 1 / _SHARERS if shared and resources.gpus else resources.gpus
        cpus = 0.0 if bundle.groups > 1 else resources.cpus
        return [{"num_cpus": cpus, "num_gpus": gpus, "scheduling_strategy": _at(bundle, rank)} for rank in range(n)]

    def release(self, group: str, resources: Resources) -> None:
        """Gives back what ``reserve`` took; a bundle goes with its last group."""
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


def _at(bundle: _Bundle, rank: int) -> PlacementGroupSchedulingStrategy:
    return PlacementGroupSchedulingStrategy(bundle.placed, placement_group_bundle_index=rank % bundle.size)


def _place(group: str, n: int, resources: Resources, *, whole_gpus: bool) -> PlacementGroup:
    gpus = float(bool(resources.gpus)) if whole_gpus else resources.gpus
    # Ray wants every bundle to hold something.
    need = {"CPU": max(resources.cpus, 0.001)} | ({"GPU": gpus} if gpus else {})
    _check_fit(group, n, need)
    placed = placement_group([need] * n, strategy="SPREAD" if resources.spread else "PACK")
    if not placed.wait(_PLACE_S):
        remove_placement_group(placed)
        raise PlacementError(f"{group}: {_asked(n, need)} could not be placed: what is free lies scattered over nodes")
    return placed


def _check_fit(group: str, n: int, need: dict[str, float]) -> None:
    """:raises PlacementError: at once when the cluster is too small, after a moment when it is taken."""
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
                raise PlacementError(
                    f"{group}: {n} x {amount:g} = {n * amount:g} {kind} are needed, {free:g} of {total:g} are free; "
                    f"{_remedy(kind)}"
                )
            time.sleep(0.1)


def _remedy(kind: str) -> str:
    if kind == "CPU":
        return "lower cluster.cpus_per_worker (it limits nothing at run time) or start fewer workers"
    return "share GPUs (cluster.placement=colocated), lower the GPUs of a worker, or start fewer workers"


def _asked(n: int, need: dict[str, float]) -> str:
    return f"{n} x ({_text(need)})"


def _text(amounts: dict[str, float]) -> str:
    return " + ".join(f"{amount:g} {kind}" for kind, amount in amounts.items())
