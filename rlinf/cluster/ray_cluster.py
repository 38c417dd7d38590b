"""A cluster of Ray actors: started on this machine, or joined by address."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError

from rlinf.base.machine import memory_bytes
from rlinf.cluster import waiting
from rlinf.cluster.api import Build, Cluster, Handle, Pending, Resources, Starting, Stream
from rlinf.cluster.errors import ClusterError, PlacementError
from rlinf.cluster.host import Host
from rlinf.cluster.packing import pack
from rlinf.cluster.placement import RayPlacement
from rlinf.cluster.ray_group import CONTROL, PIECES, RayGroup, RayHandle, RayStream, Shared
from rlinf.cluster.ray_session import RaySession
from rlinf.schema.cluster import ClusterConfig

_STORE_MB = 256  # at least; Ray writes to disk what does not fit
_SHARED_MEMORY = Path("/dev/shm")
_WORKERS_PER_CORE = 8  # processes may share cores; the share of a core that each requests is for accounting only


class RayCluster(Cluster):
    """Groups of actors. What this object started, it stops."""

    def __init__(self, config: ClusterConfig) -> None:
        self._config = config
        self._groups: dict[str, RayGroup] = {}
        self._placement = RayPlacement()
        self._closed = False
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        self._session = RaySession(
            config.address,
            start_timeout_s=config.start_timeout_s,
            options={
                "log_to_driver": os.environ.get("RLINF_WORKER_LOGS") == "1",
                "logging_level": "ERROR",
                "runtime_env": {"env_vars": worker_environment(config)},
            },
            local_options={
                "num_cpus": cores * _WORKERS_PER_CORE,
                "include_dashboard": False,
                "object_store_memory": int(os.environ.get("RLINF_OBJECT_STORE_MB") or _store_mb()) << 20,
            },
        )

    @property
    def address(self) -> str:
        """A joined cluster may have workers on other machines, which reach this one at its node's address."""
        return super().address if self._config.address is None else str(ray.util.get_node_ip_address())

    def begin(
        self, name: str, build: Build, *, n: int = 1, resources: Resources | None = None, rendezvous: bool = False
    ) -> Starting:
        if self._closed:
            raise ClusterError(f"{name}: the cluster is closed")
        if name in self._groups:
            raise ClusterError(f"there is a group {name!r} already")
        if n < 1:
            raise ValueError(f"{name}: a group has at least one worker, not {n}")
        resources = resources or Resources(cpus=self._config.cpus_per_worker)
        packed = pack(build)
        try:
            reserved = self._placement.reserve(name, n, resources)
        except (PlacementError, RayError):  # without a raylet there is no room for any worker
            self._session.require_raylet(f"{name} was not up yet.")
            raise
        environment = {"env_vars": worker_environment(self._config)}

        def start(rank: int) -> Any:
            make: Any = ray.remote
            # its type stubs lack concurrency groups
            actor = make(concurrency_groups={CONTROL: 2, PIECES: 1})(Host).options(
                **reserved[rank].options, runtime_env=environment, max_restarts=0
            )
            return actor.remote(reserved[rank].visible_gpus)

        def release() -> None:
            del self._groups[name]
            self._placement.release(name, resources)

        raylet = self._session.raylet
        group = RayGroup(name, n, self._config, start, release, rendezvous=rendezvous, raylet=raylet)
        self._groups[name] = group
        try:
            group.build(packed)
        except BaseException:
            group.close()
            raise
        return Starting(group, group.finish)

    def share(self, value: Any) -> Any:
        return Shared(ray.put(pack(value)))

    def wait_any(self, pending: Sequence[Pending], timeout: float | None = None) -> list[Pending]:
        limit = float("inf") if timeout is None else time.monotonic() + timeout
        waited = {_handle(one): one for one in pending}
        return [waited[handle] for handle in waiting.wait_first(list(waited), limit)] if waited else []

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        main = threading.current_thread() is threading.main_thread()
        # A second Ctrl-C while this runs would leave processes behind; it takes a second or two.
        before = signal.signal(signal.SIGINT, signal.SIG_IGN) if main else None
        try:
            for group in list(self._groups.values()):
                group.close()
            self._session.close()
        finally:
            if main:
                signal.signal(signal.SIGINT, before)


def _handle(pending: Handle | Stream) -> RayHandle:
    """Return the handle that the waiting functions use: a call, or the next item of a stream."""
    result = pending.waited if isinstance(pending, RayStream) else pending
    assert isinstance(result, RayHandle)
    return result


def worker_environment(config: ClusterConfig) -> dict[str, str]:
    """Environment variables of every worker: torch threads, where the driver's modules are, then the user's own."""
    threads = str(config.threads_per_worker)
    # Folders that the driver imports from, without those of the interpreter, which every worker has anyway.
    own = {Path(prefix).resolve() for prefix in (sys.prefix, sys.base_prefix)}
    folders = [Path(entry or os.curdir).resolve() for entry in sys.path]
    results = [path for path in folders if path.is_dir() and not own.intersection((path, *path.parents))]
    return {
        "OMP_NUM_THREADS": threads,
        "MKL_NUM_THREADS": threads,
        # Two threads that wait for each other by spinning are ten times slower once another program shares a core.
        "OMP_WAIT_POLICY": os.environ.get("OMP_WAIT_POLICY", "PASSIVE"),
        "PYTHONPATH": os.pathsep.join(list(dict.fromkeys(str(path) for path in results))),
    } | config.env


def _store_mb() -> int:
    """Compute the store's size: a tenth of the machine's memory, if half of its free shared memory holds that."""
    memory = memory_bytes() >> 20
    room = shutil.disk_usage(_SHARED_MEMORY).free >> 20 if _SHARED_MEMORY.exists() else 0
    return max(_STORE_MB, min(memory // 10, room // 2))
