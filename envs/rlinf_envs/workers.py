"""Processes that run one function on untrusted input, each call under a deadline.

Worker processes are started afresh (never forked: the parent may have threads, and may itself be a daemon or a Ray
actor), and talk over a socket. They end when the parent closes the socket or dies.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any, Literal

from rlinf.base.child_process import ChildProcess
from rlinf_envs.errors import SettingError
from rlinf_envs.measured import resident_bytes

START_TIMEOUT_S = 120.0
MEASURE_S = 0.25
"""How often the memory of workers is measured, where they have a limit of that kind."""
_TIMERS = (-signal.SIGPROF, -signal.SIGALRM)


@dataclass(frozen=True)
class Memory:
    """Limits of what a worker may take, in bytes; 0 means no limit."""

    address_space: int = 4 << 30
    """For functions that need no library which reserves more than it uses (torch does)."""
    data: int = 0
    """Of each process: what it may write to, but for shared memory."""
    resident: int = 0
    """Of the process and all that it started, shared memory that they have mapped included; measured every
    :data:`MEASURE_S`."""

    def words(self) -> list[str]:
        """Return the limits that the process sets for itself, as its arguments."""
        return [str(self.address_space), str(self.data)]


class WorkerStartError(RuntimeError):
    """A worker process that never came up; the message carries what it printed."""


@dataclass(frozen=True)
class Outcome:
    """The result of one call.

    ``timeout``: the deadline passed; ``memory``: the process and what it started took more than they may; ``died``: the
    process ended by itself (a crash); ``error``: the function raised.
    """

    status: Literal["done", "timeout", "memory", "died", "error"]
    value: Any = None
    repeatable: bool = True
    """Whether the same call would end so again; a deadline by the clock may be the fault of a crowded machine."""


@dataclass
class Counts:
    """The history of a pool, in numbers."""

    calls: int = 0
    timeouts: int = 0
    deaths: int = 0
    respawns: int = 0


class _Worker:
    """One process and the socket to it."""

    def __init__(self, target: str, memory: Memory, prints: bool) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self.process = ChildProcess(
                [sys.executable, "-m", "rlinf_envs.worker_process", str(theirs.fileno()), target, *memory.words()],
                name=f"a worker for {target}",
                pass_fds=[theirs.fileno()],
                output="inherit" if prints else "keep",
                # The child finds its modules where this process does, also those that a script put on sys.path.
                env={
                    **os.environ,
                    "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
                    "OMP_NUM_THREADS": "1",
                },
            )
        self.connection = Connection(ours.detach())
        self.call: int | None = None
        self.deadline = time.monotonic() + START_TIMEOUT_S
        self.ready = False

    def end(self) -> None:
        """Kills the process, waits for it, and closes the socket."""
        self.process.kill()
        self.connection.close()


class WorkerPool:
    """Processes that all run one function; started at the first call, replaced when they are stuck or dead."""

    def __init__(
        self,
        target: str,
        *,
        workers: int = 1,
        timeout_s: float = 5.0,
        wall_factor: float = 4.0,
        memory: Memory | None = None,
        prints: bool = False,
    ) -> None:
        """
        Args:
            target: "module:function", called with the arguments given to :meth:`map`; they and its value are pickled.
            timeout_s: deadline of one call, in seconds of the worker's CPU time: on a crowded machine an answer gets
                the same verdict as on an idle one.
            wall_factor: a call that does not compute is given up after this many times as long by the clock.
            memory: of one worker; None: the default of :class:`Memory`.
            prints: what the function prints goes to the output of this process; otherwise nowhere.

        Raises:
            SettingError: no worker, or no time.
        """
        if workers < 1 or not timeout_s > 0:
            raise SettingError(
                f"a pool needs at least one worker and a positive timeout, got {workers} and {timeout_s}"
            )
        self.target, self.workers, self.timeout_s, self.memory = target, workers, timeout_s, memory or Memory()
        self.wall_factor, self.prints = wall_factor, prints
        self.counts = Counts()
        self._crew: list[_Worker] = []
        self._lock = threading.Lock()
        # Runs at garbage collection and at interpreter exit, whichever comes first; holds the list, not the pool.
        self._finalizer = weakref.finalize(self, _end_all, self._crew)

    def map(self, calls: Sequence[tuple[Any, ...]]) -> list[Outcome]:
        """Run ``target(*arguments)`` for each call and return the outcomes in the same order. Safe from any thread.

        Raises:
            WorkerStartError: the processes do not come up.
            RuntimeError: the pool was closed.
        """
        if not calls:
            return []
        with self._lock:
            if not self._finalizer.alive:
                raise RuntimeError("the worker pool is closed")
            return self._run(calls)

    def process_ids(self) -> list[int]:
        """Ids of the worker processes that run now."""
        return [worker.process.pid for worker in self._crew]

    def close(self) -> None:
        """End all processes; may be called twice."""
        with self._lock:
            self._finalizer()

    def _run(self, calls: Sequence[tuple[Any, ...]]) -> list[Outcome]:
        outcomes: list[Outcome | None] = [None] * len(calls)
        waiting = list(range(len(calls) - 1, -1, -1))
        open_calls = len(calls)
        self.counts.calls += len(calls)
        while len(self._crew) < min(self.workers, len(calls)):
            self._crew.append(self._new_worker())
        try:
            while open_calls:
                for worker in self._crew:
                    if worker.ready and worker.call is None and waiting:
                        self._hand_over(worker, waiting, calls)
                busy = [worker for worker in self._crew if worker.call is not None or not worker.ready]
                pause = max(0.0, min(worker.deadline for worker in busy) - time.monotonic())
                if self.memory.resident:
                    pause = min(pause, MEASURE_S)
                answered = wait([worker.connection for worker in busy], timeout=pause)
                for worker in busy:
                    outcome = self._receive(worker) if worker.connection in answered else self._check_limits(worker)
                    if outcome is not None and worker.call is not None:
                        outcomes[worker.call] = outcome
                        open_calls -= 1
                        worker.call = None
                    if outcome is not None and outcome.status in ("timeout", "memory", "died"):
                        self._replace(worker)
        except BaseException:
            # An interrupt leaves answers in the sockets that belong to no call; fresh processes have none.
            _end_all(self._crew)
            raise
        return [outcome for outcome in outcomes if outcome is not None]

    def _new_worker(self) -> _Worker:
        return _Worker(self.target, self.memory, self.prints)

    def _hand_over(self, worker: _Worker, waiting: list[int], calls: Sequence[tuple[Any, ...]]) -> None:
        call = waiting.pop()
        worker.deadline = time.monotonic() + self.timeout_s * self.wall_factor
        try:
            worker.connection.send((self.timeout_s, calls[call]))
        except OSError:
            # It died while idle, which is no fault of this call.
            waiting.append(call)
            self.counts.deaths += 1
            self._replace(worker)
            return
        worker.call = call

    def _receive(self, worker: _Worker) -> Outcome | None:
        try:
            status, value = worker.connection.recv()
        except (EOFError, OSError):
            if not worker.ready:
                worker.process.kill()
                raise WorkerStartError(f"{worker.process} did not start{worker.process.last_words()}") from None
            # Whether the kernel's timers ended it, or something else did.
            ended = worker.process.wait()
            late = ended in _TIMERS
            self.counts.timeouts += late
            self.counts.deaths += not late
            return Outcome("timeout" if late else "died", repeatable=ended == -signal.SIGPROF)
        if status == "ready":
            worker.ready = True
            return None
        return Outcome(status, value)

    def _check_limits(self, worker: _Worker) -> Outcome | None:
        if worker.ready and 0 < self.memory.resident < resident_bytes(worker.process.pid):
            self.counts.deaths += 1
            return Outcome("memory")
        if time.monotonic() < worker.deadline:
            return None
        if not worker.ready:
            raise WorkerStartError(f"a worker for {self.target} took over {START_TIMEOUT_S:.0f} s to start")
        self.counts.timeouts += 1
        return Outcome("timeout", repeatable=False)

    def _replace(self, worker: _Worker) -> None:
        worker.end()
        self._crew[self._crew.index(worker)] = self._new_worker()
        self.counts.respawns += 1


def _end_all(crew: list[_Worker]) -> None:
    for worker in crew:
        worker.end()
    crew.clear()
