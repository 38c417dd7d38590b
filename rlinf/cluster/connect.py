"""The one way in: a cluster of the configured kind."""

from __future__ import annotations

from rlinf.cluster.api import Cluster
from rlinf.schema.cluster import ClusterConfig


def connect(config: ClusterConfig) -> Cluster:
    """Start Ray, join the running cluster at ``config.address``, or make the local one; use it with ``with``.

    :raises UnreachableError: nothing answers at the address.
    :raises ClusterStartError: Ray did not come up on this machine.
    """
    if config.backend == "local":
        from rlinf.cluster.local import LocalCluster

        return LocalCluster(config)
    from rlinf.cluster.ray_settings import apply_settings

    apply_settings()
    from rlinf.cluster.ray_cluster import RayCluster

    return RayCluster(config)
