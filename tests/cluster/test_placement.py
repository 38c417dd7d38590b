"""What does not fit is refused at once, with the arithmetic; what shares a bundle sits together."""

from __future__ import annotations

import time

import pytest
from cluster_workers import Worker

from rlinf.cluster import Cluster, PlacementError, Resources


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
    with pytest.raises(PlacementError, match="shares at most one GPU per rank, and 2 are asked for"):
        ray_cluster.spawn("gpus", Worker, resources=Resources(gpus=2, bundle="main"))


def test_groups_of_a_bundle_share_its_place(ray_cluster: Cluster) -> None:
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
