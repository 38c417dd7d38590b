"""Clusters with deadlines of their own on the Ray of the session."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from cluster_workers import CONFIG, Worker

from rlinf.cluster import Cluster, WorkerGroup, connect
from rlinf.cluster.local import LocalCluster


@pytest.fixture(scope="session")
def ray_cluster(ray_session: Cluster) -> Iterator[Cluster]:
    with connect(CONFIG) as cluster:
        yield cluster


@pytest.fixture
def hasty(ray_cluster: Cluster) -> Iterator[Cluster]:
    """A cluster on the same Ray whose calls may take two seconds."""
    with connect(replace(CONFIG, call_timeout_s=2.0)) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def local_cluster() -> Iterator[Cluster]:
    with connect(replace(CONFIG, backend="local")) as cluster:
        yield cluster


@pytest.fixture(scope="session", params=["local", "ray"])
def cluster(request: pytest.FixtureRequest) -> Cluster:
    found = request.getfixturevalue(f"{request.param}_cluster")
    assert isinstance(found, Cluster)
    return found


@pytest.fixture(scope="session")
def local_pair(local_cluster: Cluster) -> Iterator[WorkerGroup]:
    with local_cluster.spawn("pair", Worker, n=2) as group:
        yield group


@pytest.fixture(scope="session")
def ray_pair(ray_cluster: Cluster) -> Iterator[WorkerGroup]:
    with ray_cluster.spawn("pair", Worker, n=2) as group:
        yield group


@pytest.fixture(scope="session")
def pair(cluster: Cluster, request: pytest.FixtureRequest) -> WorkerGroup:
    """Two workers that no test breaks; processes take seconds to start where cores are few."""
    found = request.getfixturevalue("local_pair" if isinstance(cluster, LocalCluster) else "ray_pair")
    assert isinstance(found, WorkerGroup)
    return found
