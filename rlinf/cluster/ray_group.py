"""A group of workers that are Ray actors."""

from __future__ import annotations

import itertools
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayError

from rlinf.base.timeline import Span
from rlinf.cluster import waiting
from rlinf.cluster.api import Assembled, Handle, RankInfo, Stream, WorkerGroup
from rlinf.cluster.death import describe_death, node_was_lost
from rlinf.cluster.errors import ClusterError, ClusterLost, WorkerDied, WorkerTimeout
from rlinf.cluster.host import HostProcess, SharedArgument
from rlinf.cluster.packing import Packed, pack
from rlinf.cluster.restart_budget import RestartBudget
from rlinf.cluster.vital_signs import VitalSigns, is_alive
from rlinf.schema.cluster import ClusterConfig

CONTROL, PIECES = "control", "pieces"
"""Concurrency groups of :class:`Host`."""
_ANSWER_S = 5.0  # how long a live worker may take to answer from its second thread
_CLOSE_S = 2.0  # how long workers may take to close what they hold, before they are ended anyway
_tokens = itertools.count()
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Shared:
    """A value in the object store, as ``share`` returns it."""

    ref: ray.ObjectRef


class _Ping:
    """A question to a worker's second thread that is not answered yet."""

    def __init__(self, ref: ray.ObjectRef, now: float) -> None:
        self.ref = ref
        self._still_since = now
        self._signs: VitalSigns | None = None

    def silent_s(self, process: HostProcess) -> float:
        """Seconds for which the process has neither answered nor run; 0 for one on another node."""
        now = time.monotonic()
        signs = VitalSigns.of(process.pid) if _is_here(process) else None
        if signs is None or signs.advanced(self._signs):
            self._still_since, self._signs = now, signs
        return now - self._still_since


class RayHandle(Handle):
    """A call on an actor. ``started`` and ``deadline`` are on the monotonic clock, seconds."""

    def __init__(self, workers: RayGroup, rank: int, method: str, ref: ray.ObjectRef, allowed_s: float) -> None:
        self.workers = workers
        self.group = workers.name
        self.rank = rank
        self.method = method
        self.ref = ref
        self.started = time.monotonic()
        self.deadline = self.started + allowed_s

    def result(self, timeout: float | None = None) -> Any:
        if timeout is not None and not waiting.wait_first([self], limit=time.monotonic() + timeout):
            raise waiting.timeout_error([self], time.monotonic() - self.started)
        return self.workers.gather([self])[0]

    def done(self) -> bool:
        return bool(ray.wait([self.ref], timeout=0)[0])


class RayStream(Stream):
    """Items of a generator method on an actor. ``waited`` stands for the next one in the waiting functions."""

    def __init__(self, workers: RayGroup, rank: int, method: str, token: int, items: Any, *, paired: bool) -> None:
        """``items``: Ray's generator, until the group's ``stop_stream`` is called with the token."""
        self.workers, self.group, self.rank, self.method = workers, workers.name, rank, method
        self._token, self._items, self._paired = token, items, paired
        self._open = True
        self.waited = self._handle(items)

    def __next__(self) -> Any:
        if not self._open:
            raise StopIteration
        with self.workers.fates_tied():
            waiting.wait_first([self.waited])
            try:
                handles = [self._handle(next(self._items))]
            except StopIteration:
                self._open = False
                raise
            if self._paired:
                handles += [self._handle(ref) for ref in itertools.islice(self._items, 1)]
            (item,) = waiting.gather(handles[-1:])  # the only one, where the worker raised
        self.waited = self._handle(self._items)
        return (item, handles[0]) if self._paired else item

    def close(self) -> None:
        if self._open:
            self._open = False
            self.workers.stop_stream(self.rank, self._token)

    def _handle(self, ref: Any) -> RayHandle:
        return RayHandle(self.workers, self.rank, self.method, ref, self.workers.config.call_timeout_s)


class RayGroup(WorkerGroup):
    """Made by the cluster. ``start`` makes the actor of a rank; ``release`` gives back what the group held.

    ``raylet``: process id of Ray's daemon on this machine, if this program started it.
    """

    def __init__(
        self,
        name: str,
        size: int,
        config: ClusterConfig,
        start: Callable[[int], Any],
        release: Callable[[], None],
        *,
        rendezvous: bool,
        raylet: int | None,
    ) -> None:
        super().__init__(name, size)
        self.config = config
        self._start = start
        self._release = release
        self._rendezvous = rendezvous
        self._raylet = raylet
        self._budget = RestartBudget(config.max_restarts, config.restart_window_s)
        self._pings: dict[int, _Ping] = {}
        self._watching = threading.Lock()
        self._closed = False
        self._processes: list[HostProcess] = []
        self._infos: list[RankInfo] = []
        self._builds: list[RayHandle] = []
        self._hosts: list[Any] = [start(rank) for rank in range(size)]

    def build(self, packed: Packed) -> None:
        """Wait for the processes, send each its rank, and start building its object; :meth:`finish` waits for those."""
        deadline = time.monotonic() + self.config.start_timeout_s
        self._packed = packed
        refs = [host.process.remote() for host in self._hosts]
        starting = [self._starting(rank, "start", ref, deadline) for rank, ref in enumerate(refs)]
        self._processes = waiting.gather(starting)
        address, port = None, None
        if self._rendezvous:
            address = self._processes[0].address
            port = waiting.gather([self._starting(0, "start", self._control(0, "free_port"), deadline)])[0]
        seen: dict[str, int] = {}
        for rank, process in enumerate(self._processes):
            local = seen.get(process.node_id, 0)
            seen[process.node_id] = local + 1
            threads = self.config.threads_per_worker
            _log.debug("%s rank %d is process %d, of raylet %d", self.name, rank, process.pid, process.raylet)
            self._infos.append(RankInfo(rank, self.size, self.name, threads, address, port, local, process.address))
        refs = [host.build.remote(packed, info) for host, info in zip(self._hosts, self._infos, strict=True)]
        self._builds = [self._starting(rank, "build", ref, deadline) for rank, ref in enumerate(refs)]

    def finish(self) -> None:
        """Wait for the workers' objects, within the start deadline that began with :meth:`build`."""
        waiting.gather(self._builds)

    def _starting(self, rank: int, method: str, ref: ray.ObjectRef, deadline: float) -> RayHandle:
        return RayHandle(self, rank, method, ref, max(0.0, deadline - time.monotonic()))

    def submit_one(self, rank: int, method: str, /, *args: Any, **options: Any) -> Handle:
        ref = self._host(rank).call.remote(method, *_with_shared(args, options))
        return RayHandle(self, rank, method, ref, self.config.call_timeout_s)

    def submit_remote(self, rank: int, method: str, /, *args: Any, **options: Any) -> tuple[Handle, Handle]:
        call = self._host(rank).call_remote.options(num_returns=2)
        one, other = call.remote(method, *_with_shared(args, options))
        allowed_s = self.config.call_timeout_s
        return RayHandle(self, rank, method, one, allowed_s), RayHandle(self, rank, method, other, allowed_s)

    def submit_pieces(
        self, rank: int, function: Callable[..., Sequence[Any]], /, *args: Any, count: int
    ) -> tuple[Handle, list[Handle]]:
        call = self._host(rank).pieces.options(concurrency_group=PIECES, num_returns=1 + count)
        refs = call.remote(count, *_with_shared([function, *args], {}))
        name, allowed_s = function.__name__, self.config.call_timeout_s
        handles: list[Handle] = [RayHandle(self, rank, name, ref, allowed_s) for ref in refs]
        return handles[0], handles[1:]

    def gather(self, handles: Sequence[Handle]) -> list[Any]:
        with self.fates_tied():
            return waiting.gather([handle for handle in handles if isinstance(handle, RayHandle)])

    def stream(self, rank: int, method: str, /, *args: Any, pairs: bool = False, **options: Any) -> Stream:
        token, start = next(_tokens), self._host(rank).stream.options(num_returns="streaming")
        items = start.remote(token, pairs, method, *_with_shared(args, options))
        return RayStream(self, rank, method, token, items, paired=pairs)

    def stop_stream(self, rank: int, token: int) -> None:
        """End a stream at its next item."""
        if not self._closed:
            self._control(rank, "stop_stream", token)

    def nodes(self) -> list[str]:
        return [process.address for process in self._processes]

    @contextmanager
    def fates_tied(self) -> Iterator[None]:
        """End the whole group if waiting in this context fails and its ranks have a rendezvous."""
        try:
            yield
        except ClusterError:
            if self._rendezvous:
                self._end()
            raise

    def restart(self, ranks: Sequence[int], *, counted: bool = True) -> None:
        hosts = {rank: self._host(rank) for rank in ranks}
        if self._rendezvous:
            raise ClusterError(f"{self.name}: ranks that met cannot be replaced one by one; spawn the group again")
        for rank, host in hosts.items():
            if counted and not self._budget.spend(rank):
                raise self.no_restart_left(rank)
            _end(host, self._processes[rank])
            self._pings.pop(rank, None)
            self._hosts[rank] = self._start(rank)
        deadline = time.monotonic() + self.config.start_timeout_s
        coming = [self._starting(rank, "start", self._hosts[rank].process.remote(), deadline) for rank in ranks]
        for rank, process in zip(ranks, waiting.gather(coming), strict=True):
            self._processes[rank] = process
        builds = {rank: self._hosts[rank].build.remote(self._packed, self._infos[rank]) for rank in ranks}
        waiting.gather([self._starting(rank, "build", ref, deadline) for rank, ref in builds.items()])

    def close(self) -> None:
        if not self._closed:
            ray.wait([host.close.remote() for host in self._hosts], num_returns=self.size, timeout=_CLOSE_S)
            self._end()

    def _end(self) -> None:
        """End the processes at once: a rank that waits in a collective would not answer."""
        if not self._closed:
            self._closed = True
            for host in self._hosts:
                ray.kill(host)
            self._release()

    def check_alive(self, waited_for: Sequence[int]) -> None:
        """Request a sign of life from the second thread of workers that have a call under way.

        If fates are tied, every rank must answer, since a call then waits for all.

        :raises ClusterLost: Ray's daemon on this machine is gone. Ray notices after about 14 s, and may then end this
            process at once, without a message.
        :raises WorkerDied: a process is gone.
        :raises WorkerTimeout: a process has neither answered nor run for ``heartbeat_timeout_s``. Silence alone
            proves nothing, since native code may hold the interpreter; but then it uses the processor.
        """
        if self._closed:
            return
        for rank in waited_for:
            raylet = self._raylet_of(rank)
            if raylet is not None and not is_alive(raylet):
                raise self._ray_lost(rank, raylet, "a call")
        # A thread may wait for a rollout while another waits for the images of the one before.
        with self._watching:
            self._watch(waited_for)

    def _watch(self, waited_for: Sequence[int]) -> None:
        """Ping workers, and check the answers."""
        for rank in range(self.size) if self._rendezvous else set(waited_for):
            if rank not in self._pings and rank < len(self._infos):
                self._pings[rank] = _Ping(self._control(rank, "ping"), time.monotonic())
        if not self._pings:
            return
        refs = [ping.ref for ping in self._pings.values()]
        answered = set(ray.wait(refs, num_returns=len(refs), timeout=0)[0])
        for rank, ping in list(self._pings.items()):
            if ping.ref in answered:
                self._pings.pop(rank, None)
                try:
                    ray.get(ping.ref)
                except RayError as error:
                    if self._rendezvous:  # elsewhere the dead worker's own calls end
                        raise self.died(rank, "a call", error) from None
            elif ping.silent_s(self._processes[rank]) > self.config.heartbeat_timeout_s:
                raise self._stalled(rank)

    def _stalled(self, rank: int) -> WorkerTimeout:
        """Build the error for a process that stands still."""
        process = self._processes[rank]
        message = (
            f"{self.name} rank {rank} of {self.size} (pid {process.pid} on {process.address}) has stood still for "
            f"{self.config.heartbeat_timeout_s:g} s (cluster.heartbeat_timeout_s): its process is stopped or frozen"
        )
        self._pings.pop(rank, None)
        return WorkerTimeout(message, group=self.name, rank=rank, method="ping")

    def record_spans(self, on: bool) -> list[Span]:
        if self._closed:
            return []
        refs = [self._control(rank, "record_spans", on) for rank in range(self.size)]
        ready, _ = ray.wait(refs, num_returns=len(refs), timeout=_ANSWER_S)
        spans: list[Span] = []
        for ref in ready:
            with suppress(RayError):  # a worker that died; its own call reports that
                spans += ray.get(ref)
        return spans

    def stacks(self, ranks: Sequence[int]) -> list[str]:
        """Where workers are, in words, for the message of a timeout."""
        refs = [self._control(rank, "stack") for rank in ranks]
        ray.wait(refs, num_returns=len(refs), timeout=_ANSWER_S)
        return [_answer(ref) for ref in refs]

    def died(self, rank: int, method: str, error: RayError) -> WorkerDied:
        """Build the error for a process that is gone.

        :raises ClusterLost: Ray itself is gone from this machine, and the worker with it.
        """
        raylet = self._raylet_of(rank)
        if raylet is not None and (node_was_lost(error) or not is_alive(raylet)):
            raise self._ray_lost(rank, raylet, method)
        message = f"{self._who(rank)} died in {method} {describe_death(self._process(rank), error)}"
        return WorkerDied(message, group=self.name, rank=rank, method=method)

    def _ray_lost(self, rank: int, raylet: int, method: str) -> ClusterLost:
        doing = f"was in {method}" if self._process(rank) is not None else "was not up yet"
        return ClusterLost(raylet, f"{self._who(rank)} {doing}.")

    def _raylet_of(self, rank: int) -> int | None:
        """Process id of the daemon that holds the worker; None if it is not on this machine, or not yet found."""
        process = self._process(rank)
        if process is None:
            return self._raylet
        return process.raylet if _is_here(process) else None

    def _who(self, rank: int) -> str:
        return f"{self.name} rank {rank} of {self.size}"

    def _process(self, rank: int) -> HostProcess | None:
        """Return the worker's process; None before it is up."""
        return self._processes[rank] if rank < len(self._processes) else None

    def _host(self, rank: int) -> Any:
        self.check_rank(rank)
        if self._closed:
            raise ClusterError(f"{self.name} is closed")
        return self._hosts[rank]

    def _control(self, rank: int, method: str, *args: Any) -> ray.ObjectRef:
        """Call a control method, which is answered while another method runs."""
        return getattr(self._hosts[rank], method).options(concurrency_group=CONTROL).remote(*args)


def _is_here(process: HostProcess) -> bool:
    return bool(process.node_id == ray.get_runtime_context().get_node_id())


def _end(host: Any, process: HostProcess) -> None:
    """End a worker's process, also one that is stopped and cannot follow Ray's request."""
    ray.kill(host)
    signs = VitalSigns.of(process.pid) if _is_here(process) else None
    if signs is not None and signs.parent == process.raylet:
        with suppress(OSError):  # it has just ended
            os.kill(process.pid, signal.SIGKILL)


def _answer(ref: ray.ObjectRef) -> str:
    try:
        return str(ray.get(ref, timeout=0))
    except GetTimeoutError:
        return "not answering: it is still starting, or in native code that holds the interpreter"
    except RayError:
        return "dead"


def _with_shared(args: Sequence[Any], options: dict[str, Any]) -> list[Any]:
    """List the packed arguments, then the references among them: Ray resolves only what is an argument itself."""
    refs: list[ray.ObjectRef] = []

    def marked(value: Any) -> Any:
        if isinstance(value, Assembled):
            return replace(value, parts=tuple(map(marked, value.parts)))
        if not isinstance(value, Shared | RayHandle):
            return value
        refs.append(value.ref)
        return SharedArgument(len(refs) - 1)

    call = ([marked(value) for value in args], {name: marked(value) for name, value in options.items()})
    return [pack(call), *refs]
