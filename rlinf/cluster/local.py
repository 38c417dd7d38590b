"""The same groups in this process: for debugging, for tests, and for machines where starting Ray does not pay.

Calls run at once, in the caller's thread, so deadlines and heartbeats have nothing to watch. Arguments and
results are the very objects, not copies. A worker must not keep or change what it was given, as it could not
through Ray.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress
from typing import Any

from rlinf.base import timeline
from rlinf.base.timeline import Span
from rlinf.cluster.api import (
    Assembled,
    Build,
    Cluster,
    Handle,
    Pending,
    RankInfo,
    Resources,
    Starting,
    Stream,
    WorkerGroup,
)
from rlinf.cluster.errors import ClusterError, PlacementError, WorkerError
from rlinf.cluster.failure import capture
from rlinf.cluster.restart_budget import RestartBudget
from rlinf.schema.cluster import ClusterConfig


class LocalHandle(Handle):
    """A call that has already run."""

    def __init__(self, group: str, rank: int, method: str, value: Any, error: WorkerError | None) -> None:
        self.group = group
        self.rank = rank
        self.method = method
        self._value = value
        self.error = error

    def result(self, timeout: float | None = None) -> Any:
        if self.error is not None:
            raise self.error
        return self._value

    def done(self) -> bool:
        return True

    def part(self, number: int) -> LocalHandle:
        """One of the values that the call returned."""
        value = None if self.error is not None else self._value[number]
        return LocalHandle(self.group, self.rank, self.method, value, self.error)


class _LocalStream(Stream):
    """A generator that runs while its next item is requested."""

    def __init__(self, workers: _LocalGroup, rank: int, method: str, items: Iterator[Any]) -> None:
        self.group, self.rank, self.method = workers.name, rank, method
        self._workers = workers
        self._items = items

    def __next__(self) -> Any:
        try:
            return next(self._items)
        except StopIteration:
            raise
        except (Exception, SystemExit) as error:
            raise self._workers.failure(self.rank, self.method, capture(error)) from None

    def close(self) -> None:
        if isinstance(self._items, Generator):
            self._items.close()


class _LocalGroup(WorkerGroup):
    """Workers that are objects of this process."""

    def __init__(
        self, name: str, build: Build, infos: Sequence[RankInfo], budget: RestartBudget, release: Callable[[], None]
    ) -> None:
        super().__init__(name, len(infos))
        self._release = release
        self._build = build
        self._infos = infos
        self._budget = budget
        self._workers: list[object | None] = [None] * len(infos)
        try:
            for rank in range(self.size):
                self._start(rank)
        except BaseException:
            self.close()
            raise

    def _start(self, rank: int) -> None:
        self._end(rank)
        try:
            self._workers[rank] = self._build(self._infos[rank])
        except (Exception, SystemExit) as error:
            raise self.failure(rank, "build", capture(error)) from None

    def _worker(self, rank: int) -> object:
        self.check_rank(rank)
        worker = self._workers[rank]
        if worker is None:
            raise ClusterError(f"{self.name} is closed")
        return worker

    def submit_one(self, rank: int, method: str, /, *args: Any, **options: Any) -> LocalHandle:
        worker = self._worker(rank)
        return self._run(rank, method, lambda *given, **named: getattr(worker, method)(*given, **named), args, options)

    def submit_remote(self, rank: int, method: str, /, *args: Any, **options: Any) -> tuple[Handle, Handle]:
        made = self.submit_one(rank, method, *args, **options)
        return made.part(0), made.part(1)

    def submit_pieces(
        self, rank: int, function: Callable[..., Sequence[Any]], /, *args: Any, count: int
    ) -> tuple[Handle, list[Handle]]:
        self._worker(rank)
        made = self._run(rank, function.__name__, function, args, {})
        return LocalHandle(self.name, rank, made.method, None, made.error), [made.part(i) for i in range(count)]

    def _run(
        self, rank: int, method: str, function: Callable[..., Any], args: Sequence[Any], options: dict[str, Any]
    ) -> LocalHandle:
        value, error = None, None
        try:
            values = {name: _value(option) for name, option in options.items()}
            with timeline.process(f"{self.name} {rank}"), timeline.span(method):
                value = function(*map(_value, args), **values)
        except (Exception, SystemExit) as raised:
            error = self.failure(rank, method, capture(raised))
        return LocalHandle(self.name, rank, method, value, error)

    def gather(self, handles: Sequence[Handle]) -> list[Any]:
        return [handle.result() for handle in handles]

    def stream(self, rank: int, method: str, /, *args: Any, pairs: bool = False, **options: Any) -> Stream:
        items = iter(getattr(self._worker(rank), method)(*args, **options))
        if pairs:
            items = ((one, LocalHandle(self.name, rank, method, other, None)) for one, other in items)
        return _LocalStream(self, rank, method, items)

    def record_spans(self, on: bool) -> list[Span]:
        """Return nothing: the workers' spans are those of this process."""
        return []

    def nodes(self) -> list[str]:
        return [info.node for info in self._infos]

    def restart(self, ranks: Sequence[int], *, counted: bool = True) -> None:
        for rank in ranks:
            self.check_rank(rank)
            if counted and not self._budget.spend(rank):
                raise self.no_restart_left(rank)
            self._start(rank)

    def _end(self, rank: int) -> None:
        worker, self._workers[rank] = self._workers[rank], None
        with suppress(Exception):
            if hasattr(worker, "close"):
                worker.close()

    def close(self) -> None:
        for rank in range(self.size):
            self._end(rank)
        self._release()


class LocalCluster(Cluster):
    """Workers in this process, with the same number of torch threads as they have through Ray."""

    concurrent = False

    def __init__(self, config: ClusterConfig) -> None:
        import torch

        self._config = config
        self._groups: dict[str, _LocalGroup] = {}
        self._threads_before: int | None = torch.get_num_threads()
        torch.set_num_threads(config.threads_per_worker)
        self._env_before = {name: os.environ.get(name) for name in config.env}
        os.environ.update(config.env)

    def begin(
        self, name: str, build: Build, *, n: int = 1, resources: Resources | None = None, rendezvous: bool = False
    ) -> Starting:
        if rendezvous and n > 1:
            raise PlacementError(
                f"{name}: {n} ranks that meet in collectives need {n} processes, and cluster.backend=local has one; "
                f"use cluster.backend=ray, or one rank"
            )
        if self._threads_before is None:
            raise ClusterError(f"{name}: the cluster is closed")
        if name in self._groups:
            raise ClusterError(f"there is a group {name!r} already")
        address, port = ("127.0.0.1", _free_port()) if rendezvous else (None, None)
        infos = [
            RankInfo(rank, n, name, self._config.threads_per_worker, address, port, local_rank=rank)
            for rank in range(n)
        ]

        def release() -> None:
            self._groups.pop(name, None)

        self._groups[name] = group = _LocalGroup(
            name, build, infos, RestartBudget(self._config.max_restarts, self._config.restart_window_s), release
        )
        return Starting(group, lambda: None)  # its objects are made

    def share(self, value: Any) -> Any:
        return value

    def wait_any(self, pending: Sequence[Pending], timeout: float | None = None) -> list[Pending]:
        return list(pending)

    def close(self) -> None:
        import torch

        for group in list(self._groups.values()):
            group.close()
        if self._threads_before is None:
            return
        torch.set_num_threads(self._threads_before)
        self._threads_before = None
        for name, value in self._env_before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _value(argument: Any) -> Any:
    if isinstance(argument, Assembled):
        return argument.of(_value)
    return argument.result() if isinstance(argument, LocalHandle) else argument


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
