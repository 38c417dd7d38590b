"""A few processes that stay up for the whole test session and form a gloo group of any size for each job."""

from __future__ import annotations

import multiprocessing
import os
import sys
import tempfile
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

Job = Callable[..., Any]
_DEADLINE_S = 120.0


class Gang:
    """``run`` calls a function on the first ``ranks`` processes and returns what each of them returned."""

    def __init__(self, size: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.folder = tempfile.TemporaryDirectory()
        self.jobs = 0
        self.pipes: list[Connection] = []
        self.processes: list[Any] = []
        os.environ["OMP_NUM_THREADS"] = "1"
        for _ in range(size):
            here, there = context.Pipe()
            process = context.Process(target=_serve, args=(there,))
            process.start()
            self.pipes.append(here)
            self.processes.append(process)

    def run(self, job: Job, *arguments: Any, ranks: int) -> list[Any]:
        self.jobs += 1
        store = Path(self.folder.name) / f"store{self.jobs}"
        for rank in range(ranks):
            self.pipes[rank].send((job, arguments, rank, ranks, str(store)))
        answers = []
        for rank in range(ranks):
            if not self.pipes[rank].poll(_DEADLINE_S):
                raise TimeoutError(f"rank {rank} gave no answer to {job.__name__} in {_DEADLINE_S} s")
            answers.append(self.pipes[rank].recv())
        failures = [f"rank {rank}:\n{answer[1]}" for rank, answer in enumerate(answers) if not answer[0]]
        if failures:
            raise AssertionError("\n".join(failures))
        return [answer[1] for answer in answers]

    def close(self) -> None:
        for pipe in self.pipes:
            pipe.send(None)
        for process in self.processes:
            process.join(10)
            if process.is_alive():
                process.kill()
        self.folder.cleanup()


def _serve(pipe: Connection) -> None:
    torch.set_num_threads(1)
    while (task := pipe.recv()) is not None:
        job, arguments, rank, ranks, store = task
        try:
            dist.init_process_group("gloo", store=dist.FileStore(store, ranks), rank=rank, world_size=ranks)
            pipe.send((True, job(*arguments)))
        except BaseException:
            pipe.send((False, traceback.format_exc()))
        finally:
            _leave()


def _leave() -> None:
    if "rlinf.learners.megatron.layout" in sys.modules:
        from rlinf.learners.megatron.layout import dissolve

        dissolve()
    if dist.is_initialized():
        dist.destroy_process_group()
