"""A cluster of Ray actors: started on this machine, or joined by address."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rlinf.cluster.api import Build, Cluster, Handle, Pending, Resources, Stream, WorkerGroup
from rlinf.cluster.errors import ClusterError, UnreachableError
from rlinf.config.schema.cluster import ClusterConfig

# Read by Ray when it is imported or started; what the user has set stays.
for _name, _value in {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_IGNORE_UNHANDLED_ERRORS": "1",  # every failure is raised by our own waiting, with the worker's name
    "RAY_prestart_worker_first_driver": "0",  # our workers have their own environment; idle ones only cost
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "1",  # a worker without GPUs sees none
}.items():
    os.environ.setdefault(_name, _value)

import ray  # noqa: E402

from rlinf.cluster import waiting  # noqa: E402
from rlinf.cluster.host import Host  # noqa: E402
from rlinf.cluster.packing import pack  # noqa: E402
from rlinf.cluster.placement import Placement  # noqa: E402
from rlinf.cluster.ray_group import CONTROL, RayGroup, RayHandle, RayStream, Shared  # noqa: E402

_STORE_MB = 256
_REACH_S = 10.0
_WORKERS_PER_CORE = 8  # processes may share cores; the share of a core that each asks for only keeps the books


class RayCluster(Cluster):
    """Groups of actors. What this object started, it stops."""

    def __init__(self, config: ClusterConfig) -> None:
        self._config = config
        self._groups: dict[str, RayGroup] = {}
        self._placement = Placement()
        self._closed = False
        self._owned = not ray.is_initialized()
        self._sigterm_before = signal.getsignal(signal.SIGTERM)
        if self._owned:
            _check_reachable(config.address)
            try:
                ray.init(**_init_options(config))
            except (ConnectionError, RuntimeError, ValueError) as error:
                raise UnreachableError(f"cannot reach Ray at cluster.address={config.address!r}: {error}") from None
            except BaseException:  # Ctrl-C while Ray starts
                self.close()
                raise

    def spawn(
        self, name: str, build: Build, *, n: int = 1, resources: Resources | None = None, rendezvous: bool = False
    ) -> WorkerGroup:
        if self._closed:
            raise ClusterError(f"{name}: the cluster is closed")
        if name in self._groups:
            raise ClusterError(f"there is a group {name!r} already")
        if n < 1:
            raise ValueError(f"{name}: a group has at least one worker, not {n}")
        resources = resources or Resources(cpus=self._config.cpus_per_worker)
        packed = pack(build)
        places = self._placement.reserve(name, n, resources)
        environment = {"env_vars": worker_environment(self._config)}

        def start(rank: int) -> Any:
            actor = _actor().options(**places[rank].options, runtime_env=environment, max_restarts=0)
            return actor.remote(places[rank].visible_gpus)

        def release() -> None:
            del self._groups[name]
            self._placement.release(name, resources)

        group = RayGroup(name, n, self._config, start, release, rendezvous=rendezvous)
        self._groups[name] = group
        try:
            group.build(packed)
        except BaseException:
            group.close()
            raise
        return group

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
            if self._owned:
                ray.shutdown()
                if main:
                    signal.signal(signal.SIGTERM, self._sigterm_before)  # Ray had put its own
        finally:
            if main:
                signal.signal(signal.SIGINT, before)


def _check_reachable(address: str | None) -> None:
    """Ray itself tries for minutes before it gives up on an address where nobody answers.

    :raises UnreachableError: nothing accepts a connection at ``host:port`` (``auto`` and null name no such place).
    """
    host, _, port = (address or "").partition("?")[0].rpartition(":")
    if not port.isdecimal():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_REACH_S).close()
    except OSError as error:
        raise UnreachableError(f"nothing answers at cluster.address={address!r}: {error}") from None


def _handle(pending: Handle | Stream) -> RayHandle:
    """What the waiting functions know: a call, or the next item of a stream."""
    found = pending.waited if isinstance(pending, RayStream) else pending
    assert isinstance(found, RayHandle)
    return found


def _actor() -> Any:
    make: Any = ray.remote  # its type stubs know no concurrency groups
    return make(concurrency_groups={CONTROL: 2})(Host)


def worker_environment(config: ClusterConfig) -> dict[str, str]:
    """Environment variables of every worker: torch threads, where the driver's modules are, then the user's own."""
    threads = str(config.threads_per_worker)
    return {
        "OMP_NUM_THREADS": threads,
        "MKL_NUM_THREADS": threads,
        "PYTHONPATH": os.pathsep.join(_source_paths()),
    } | config.env


def _source_paths() -> list[str]:
    """Folders that the driver imports from, without those of the interpreter, which every worker has anyway."""
    own = {Path(prefix).resolve() for prefix in (sys.prefix, sys.base_prefix)}
    folders = [Path(entry or os.curdir).resolve() for entry in sys.path]
    found = [path for path in folders if path.is_dir() and not own.intersection((path, *path.parents))]
    return list(dict.fromkeys(str(path) for path in found))


def _init_options(config: ClusterConfig) -> dict[str, Any]:
    """What ``ray.init`` is given; ``RLINF_OBJECT_STORE_MB`` sets the size of an object store started here."""
    options: dict[str, Any] = {
        "log_to_driver": os.environ.get("RLINF_WORKER_LOGS") == "1",
        "logging_level": "ERROR",
        "runtime_env": {"env_vars": worker_environment(config)},
    }
    if config.address is not None:
        return options | {"address": config.address}
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    store = int(os.environ.get("RLINF_OBJECT_STORE_MB", _STORE_MB)) << 20
    return options | {
        "address": "local",
        "num_cpus": cores * _WORKERS_PER_CORE,
        "include_dashboard": False,
        "object_store_memory": store,
    }
