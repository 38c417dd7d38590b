"""A group of workers that are Ray actors."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import RayError

from rlinf.cluster import waiting
from rlinf.cluster.api import Handle, RankInfo, WorkerGroup
from rlinf.cluster.death import describe_death
from rlinf.cluster.errors import ClusterError, WorkerDied
from rlinf.cluster.failure import Failure
from rlinf.cluster.host import Place, SharedArgument
from rlinf.cluster.packing import Packed, pack, unpack
from rlinf.config.schema.cluster import ClusterConfig

CONTROL = "control"
_ANSWER_S = 5.0  # how long a live worker may take to answer from its second thread
_tokens = itertools.count()


@dataclass(frozen=True)
class Shared:
    """A value in the object store, as ``share`` returns it."""

    ref: ray.ObjectRef


class RayHandle(Handle):
    """A call on an actor. ``started`` and ``deadline`` are on the monotonic clock, seconds."""

    def __init__(self, group: RayGroup, rank: int, method: str, ref: ray.ObjectRef, allowed_s: float) -> None:
        self.group_object = group
        self.group = group.name
        self.rank = rank
        self.method = method
        self.ref = ref
        self.started = time.monotonic()
        self.deadline = self.started + allowed_s

    def result(self, timeout: float | None = None) -> Any:
        if timeout is not None and not waiting.wait_first([self], limit=time.monotonic() + timeout):
            took = time.monotonic() - self.started
            raise waiting.timeout_error([self], took)
        return self.group_object.gather([self])[0]

    def done(self) -> bool:
        return bool(ray.wait([self.ref], timeout=0)[0])


class RayGroup(WorkerGroup):
    """Made by the cluster, which starts the actors; ``start`` makes the actor of a rank."""

    def __init__(
        self, name: str, size: int, config: ClusterConfig, start: Callable[[int], Any], release: Callable[[], None]
    ) -> None:
        super().__init__(name, size)
        self.heartbeat_s = config.heartbeat_s
        self._config = config
        self._start = start
        self._release = release
        self._restarts_left = [config.max_restarts] * size
        self._pings: dict[int, ray.ObjectRef] = {}
        self._rendezvous = False
        self._closed = False
        self._places: list[Place] = []
        self._hosts: list[Any] = [start(rank) for rank in range(size)]

    def build(self, packed: Packed, threads: int, rendezvous: bool) -> None:
        """Waits for the processes, tells each its place, and makes the workers' objects, within the start deadline."""
        deadline = time.monotonic() + self._config.start_timeout_s
        self._rendezvous = rendezvous
        self._packed = packed
        refs = [host.place.remote() for host in self._hosts]
        self._places = waiting.gather([self._starting(rank, "start", ref, deadline) for rank, ref in enumerate(refs)])
        address, port = None, None
        if rendezvous:
            address = self._places[0].address
            port = ray.get(self._hosts[0].free_port.options(concurrency_group=CONTROL).remote(), timeout=_ANSWER_S)
        seen: dict[str, int] = {}
        self._infos: list[RankInfo] = []
        for rank, place in enumerate(self._places):
            local = seen.get(place.node_id, 0)
            seen[place.node_id] = local + 1
            self._infos.append(RankInfo(rank, self.size, self.name, threads, address, port, local, place.address))
        refs = [host.build.remote(packed, info) for host, info in zip(self._hosts, self._infos, strict=True)]
        self.gather([self._starting(rank, "build", ref, deadline) for rank, ref in enumerate(refs)])

    def _starting(self, rank: int, method: str, ref: ray.ObjectRef, deadline: float) -> RayHandle:
        return RayHandle(self, rank, method, ref, max(0.0, deadline - time.monotonic()))

    def submit_one(self, rank: int, method: str, /, *args: Any, **options: Any) -> Handle:
        host = self._host(rank)
        ref = host.call.remote(method, *_with_shared(args, options))
        return RayHandle(self, rank, method, ref, self._config.call_timeout_s)

    def gather(self, handles: Sequence[Handle]) -> list[Any]:
        mine = [handle for handle in handles if isinstance(handle, RayHandle)]
        try:
            return waiting.gather(mine)
        except ClusterError:
            if self._rendezvous:
                self.close()
            raise

    def stream(self, rank: int, method: str, /, *args: Any, **options: Any) -> Iterator[Any]:
        host = self._host(rank)
        token = next(_tokens)
        refs = host.stream.options(num_returns="streaming").remote(token, method, *_with_shared(args, options))
        ended = False
        try:
            while True:
                waiting.wait_first([RayHandle(self, rank, method, refs, self._config.call_timeout_s)], float("inf"))
                try:
                    outcome = ray.get(next(refs))
                except StopIteration:
                    ended = True
                    return
                except RayError as error:
                    raise self.died(rank, method, error) from None
                if isinstance(outcome, Failure):
                    raise self.failure(rank, method, outcome.traceback)
                yield unpack(outcome, writable=True)
        finally:
            if not ended and not self._closed:
                host.stop_stream.options(concurrency_group=CONTROL).remote(token)

    def restart(self, rank: int) -> None:
        host = self._host(rank)
        if self._rendezvous or not self._restarts_left[rank]:
            raise self.no_restart_left(rank)
        self._restarts_left[rank] -= 1
        ray.kill(host)
        self._hosts[rank] = host = self._start(rank)
        self._pings.pop(rank, None)
        deadline = time.monotonic() + self._config.start_timeout_s
        self._places[rank] = waiting.gather([self._starting(rank, "start", host.place.remote(), deadline)])[0]
        waiting.gather([self._starting(rank, "build", host.build.remote(self._packed, self._infos[rank]), deadline)])

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        for host in self._hosts:
            ray.kill(host)
        self._release()

    def check_alive(self) -> None:
        """Asks every rank for a sign of life. Silence proves nothing: native code may hold the interpreter.

        :raises WorkerDied: a process of a group with rendezvous is gone. Elsewhere only its own calls report that.
        """
        for rank, host in enumerate(self._hosts):
            if rank not in self._pings:
                self._pings[rank] = host.ping.options(concurrency_group=CONTROL).remote()
        answered, _ = ray.wait(list(self._pings.values()), num_returns=self.size, timeout=0)
        for rank, ref in list(self._pings.items()):
            if ref in answered:
                del self._pings[rank]
                try:
                    ray.get(ref)
                except RayError as error:
                    if self._rendezvous:
                        raise self.died(rank, "a call", error) from None

    def stack(self, rank: int) -> str:
        """Where a worker is, in words, for the message of a timeout."""
        try:
            return str(ray.get(self._hosts[rank].stack.options(concurrency_group=CONTROL).remote(), timeout=_ANSWER_S))
        except RayError:
            return "not answering: still starting, or inside native code that holds the interpreter"

    def died(self, rank: int, method: str, error: RayError) -> WorkerDied:
        """The error for a process that is gone."""
        place = self._places[rank] if rank < len(self._places) else None
        head = f"{self.name} rank {rank} of {self.size} died in {method}"
        return WorkerDied(f"{head} {describe_death(place, error)}", group=self.name, rank=rank, method=method)

    def _host(self, rank: int) -> Any:
        self.check_rank(rank)
        if self._closed:
            raise ClusterError(f"{self.name} is closed")
        return self._hosts[rank]


def _with_shared(args: Sequence[Any], options: dict[str, Any]) -> list[Any]:
    """The packed arguments, then the references among them: Ray resolves only what is an argument itself."""
    refs: list[ray.ObjectRef] = []

    def marked(value: Any) -> Any:
        if not isinstance(value, Shared):
            return value
        refs.append(value.ref)
        return SharedArgument(len(refs) - 1)

    call = ([marked(value) for value in args], {name: marked(value) for name, value in options.items()})
    return [pack(call), *refs]
