"""What does not fit is refused at once, with the arithmetic; what shares a bundle sits together."""

from __future__ import annotations

import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
from cluster_workers import Worker

from rlinf.cluster import Cluster, PlacementError, Resources, placement
from rlinf.cluster.placement import seats


def test_too_many_cpus_are_refused_at_once(ray_cluster: Cluster) -> None:
    started = time.monotonic()
    with pytest.raises(PlacementError, match=r"^big: 4 x 10000|a rank needs 10000 CPU on one node, and the largest"):
        ray_cluster.spawn("big", Worker, n=4, resources=Resources(cpus=10_000))
    with pytest.raises(PlacementError, match=r"^many: 1000 x 1 = 1000 CPU are needed, .* of .* are free; lower"):
        ray_cluster.spawn("many", Worker, n=1000, resources=Resources(cpus=1))
    assert time.monotonic() - started < 5


def test_gpus_that_are_not_there_are_refused(ray_cluster: Cluster) -> None:
    with pytest.raises(PlacementError, match=r"a rank needs 0.5 CPU \+ 100 GPU on one node"):
        ray_cluster.spawn("gpus", Worker, resources=Resources(gpus=100))
    with pytest.raises(PlacementError, match=r"\+ 100 GPU on one node"):
        ray_cluster.spawn("gpus", Worker, resources=Resources(gpus=100, bundle="main", bundle_gpus=100))


def test_groups_of_a_bundle_share_its_gpus(ray_cluster: Cluster) -> None:
    together = Resources(cpus=0.5, bundle="main")
    with (
        ray_cluster.spawn("learner", Worker, resources=together) as learner,
        ray_cluster.spawn("sampler", Worker, resources=together) as sampler,
    ):
        assert {info.node for info in learner.call("where") + sampler.call("where")} == {learner.call("where")[0].node}
        with pytest.raises(PlacementError, match="bundle 'main' was made without GPUs"):
            ray_cluster.spawn("other", Worker, resources=Resources(gpus=1, bundle="main"))


def test_ranks_that_meet_need_processes(local_cluster: Cluster) -> None:
    with pytest.raises(PlacementError, match="2 ranks that meet in collectives need 2 processes"):
        local_cluster.spawn("learner", Worker, n=2, rendezvous=True)
    with local_cluster.spawn("learner", Worker, rendezvous=True) as group:
        assert group.call("where")[0].master_address == "127.0.0.1"


def test_impossible_resources_are_refused() -> None:
    with pytest.raises(ValueError, match="whole number"):
        Resources(gpus=1.5)
    with pytest.raises(ValueError, match="negative"):
        Resources(cpus=-1)
    with pytest.raises(ValueError, match="gpus=2 of a rank do not fit bundle_gpus=1"):
        Resources(gpus=2, bundle="main")


@pytest.mark.parametrize(
    ("ranks", "gpus", "expected"),
    [
        (8, 0.5, [(rank // 4, (rank % 4,)) for rank in range(8)]),
        (6, 1, [(0, (0,)), (0, (1,)), (0, (2,)), (0, (3,)), (1, (0,)), (1, (1,))]),
        (3, 2, [(0, (0, 1)), (0, (2, 3)), (1, (0, 1))]),
        (2, 4, [(0, (0, 1, 2, 3)), (1, (0, 1, 2, 3))]),
        # A rank does not reach over the edge of a bundle: the last GPU of each stays free.
        (2, 3, [(0, (0, 1, 2)), (1, (0, 1, 2))]),
    ],
)
def test_ranks_fill_bundles_of_four_gpus(ranks: int, gpus: float, expected: list[tuple[int, tuple[int, ...]]]) -> None:
    assert [(seat.bundle, seat.gpus) for seat in seats(ranks, gpus=gpus, bundle_gpus=4)] == expected


def test_a_rank_that_is_wider_than_its_bundle_has_no_seat() -> None:
    with pytest.raises(ValueError, match="a rank of 8 GPUs does not fit a bundle of 4"):
        seats(1, gpus=8, bundle_gpus=4)


def test_gpus_that_no_task_names_in_time_are_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their node was lost after they were reserved: the task that names them would be waited for without an end."""
    removed: list[object] = []
    task = SimpleNamespace(options=lambda **_: SimpleNamespace(remote=lambda: "task"))
    silent = SimpleNamespace(remote=lambda _: task, wait=lambda tasks, **_: ([], tasks), get=pytest.fail)
    monkeypatch.setattr(placement, "ray", silent)
    monkeypatch.setattr(placement, "_reserve", lambda *_, **__: "reserved")
    monkeypatch.setattr(placement, "_at", lambda *_: None)
    monkeypatch.setattr(placement, "remove_placement_group", removed.append)
    reservations = placement.RayPlacement()
    for count in (1, 2):
        with pytest.raises(PlacementError, match=r"engine: the GPUs of its bundles were not named within \d+ s"):
            reservations.reserve("engine", 1, Resources(gpus=2, bundle="main", bundle_gpus=2))
        assert len(removed) == count


_FOUR_GPUS = """
import os
import ray
from rlinf.cluster import PlacementError, Resources, connect
from rlinf.schema import ClusterConfig

class Shown:
    def __init__(self, info): pass
    def gpus(self): return os.environ["CUDA_VISIBLE_DEVICES"]

ray.init(address="local", num_cpus=8, num_gpus=4, include_dashboard=False, logging_level="ERROR")
with connect(ClusterConfig()) as cluster:
    wide = dict(cpus=0.1, bundle="policy", bundle_gpus=2)
    learner = cluster.spawn("learner", Shown, n=4, resources=Resources(gpus=0.5, **wide))
    samplers = cluster.spawn("sampler", Shown, n=2, resources=Resources(gpus=2, **wide))
    print(learner.call("gpus"), samplers.call("gpus"))
    try:
        cluster.spawn("more", Shown, n=3, resources=Resources(gpus=2, **wide))
    except PlacementError as error:
        print(error)
ray.shutdown()
"""


@pytest.mark.slow
def test_an_engine_of_two_gpus_sits_on_those_of_two_learner_ranks() -> None:
    """Ray deals out GPUs by number alone: it takes our word that there are four."""
    done = subprocess.run([sys.executable, "-c", _FOUR_GPUS], capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout.splitlines() == [
        "['0', '1', '2', '3'] ['0,1', '2,3']",
        "more: 3 x 2 GPUs need 3 bundles of 2, and 'policy' has 2; start fewer, or give them GPUs of their own "
        "(cluster.placement: separate)",
    ], done.stderr
