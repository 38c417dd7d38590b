"""A few processes that stay up for the whole test session and form a gloo group of any size for each job."""

from __future__ import annotations

import gc
import multiprocessing
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from ranks import start_ranks

Job = Callable[..., Any]
_DEADLINE_S = 120.0
_MANY_THREADS = 100
"""Every gloo group has threads that wake up a hundred times a second: groups that something still holds add up."""


class Gang:
    """``run`` calls a function on the first ``ranks`` processes and returns what each of them returned."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.folder = tempfile.TemporaryDirectory()
        self.jobs = 0
        self.pipes: list[Connection] = []
        self.processes: list[Any] = []

    def _start(self) -> None:
        pairs = [multiprocessing.Pipe() for _ in range(self.size)]
        self.pipes = [here for here, _ in pairs]
        self.processes = list(start_ranks(_serve, [(there,) for _, there in pairs]))

    def run(self, job: Job, *arguments: Any, ranks: int) -> list[Any]:
        """Raises AssertionError with the traceback of the first rank that failed; the next job gets new processes."""
        if not self.processes:
            self._start()
        self.jobs += 1
        store = Path(self.folder.name) / f"store{self.jobs}"
        for rank in range(ranks):
            self.pipes[rank].send((job, arguments, rank, ranks, str(store)))
        answers: dict[int, Any] = {}
        threads = 0
        try:
            deadline = time.monotonic() + _DEADLINE_S
            while len(answers) < ranks:
                waiting = {self.pipes[rank]: rank for rank in range(ranks) if rank not in answers}
                ready = wait(list(waiting), timeout=max(0.0, deadline - time.monotonic()))
                for pipe in ready:
                    rank = waiting[pipe]
                    done, answers[rank], left = self.pipes[rank].recv()
                    threads = max(threads, left)
                    if not done:
                        raise AssertionError(f"rank {rank} failed in {job.__name__}:\n{answers[rank]}")
                if not ready:
                    raise TimeoutError(f"ranks {sorted(waiting.values())} gave no answer in {_DEADLINE_S} s")
        except BaseException:
            # A test's time limit too: others may wait in a collective for ever, or answer when the next job has begun.
            self._stop(grace_s=0.0)
            raise
        if threads > _MANY_THREADS:
            self._end()
        return [answers[rank] for rank in range(ranks)]

    def _stop(self, *, grace_s: float) -> None:
        for process in self.processes:
            process.join(grace_s)
            if process.is_alive():
                process.kill()
        self.pipes, self.processes = [], []

    def _end(self) -> None:
        for pipe in self.pipes:
            pipe.send(None)
        self._stop(grace_s=10.0)

    def close(self) -> None:
        self._end()
        self.folder.cleanup()


def _serve(pipe: Connection) -> None:
    torch.set_num_threads(1)
    while (task := pipe.recv()) is not None:
        job, arguments, rank, ranks, store = task
        try:
            dist.init_process_group("gloo", store=dist.FileStore(store, ranks), rank=rank, world_size=ranks)
            answer = True, job(*arguments)
        except BaseException:
            pipe.send((False, traceback.format_exc(), 0))
            _leave()
        else:
            _leave()
            pipe.send((*answer, _threads()))


def _threads() -> int:
    """Of this process, those of libraries included; 0 where the system does not report it."""
    tasks = Path("/proc/self/task")
    return len(list(tasks.iterdir())) if tasks.exists() else 0


def _leave() -> None:
    if "rlinf.learners.megatron.layout" in sys.modules:
        from rlinf.learners.megatron.layout import dissolve

        dissolve()
    if dist.is_initialized():
        dist.destroy_process_group()
    gc.collect()
