"""Where workers run: groups of processes behind one small interface. The only package that imports ray.

``connect`` gives a :class:`Cluster`; ``cluster.spawn`` gives a :class:`WorkerGroup`. Code above this layer
does not depend on whether the workers are Ray actors on many nodes (``cluster.backend: ray``) or objects of
this process (``local``). Ray is imported when a Ray cluster is connected to, and not before.
"""

from rlinf.cluster.api import Cluster, GroupSize, Handle, RankInfo, Resources, Starting, Stream, WorkerGroup
from rlinf.cluster.connect import connect
from rlinf.cluster.errors import (
    WORKER_LOST,
    ClusterError,
    ClusterLost,
    ClusterStartError,
    PlacementError,
    UnreachableError,
    ValueLost,
    WorkerDied,
    WorkerError,
    WorkerTimeout,
)

__all__ = [
    "WORKER_LOST",
    "Cluster",
    "ClusterError",
    "ClusterLost",
    "ClusterStartError",
    "GroupSize",
    "Handle",
    "PlacementError",
    "RankInfo",
    "Resources",
    "Starting",
    "Stream",
    "UnreachableError",
    "ValueLost",
    "WorkerDied",
    "WorkerError",
    "WorkerGroup",
    "WorkerTimeout",
    "connect",
]
