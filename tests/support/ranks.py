"""Processes for tests of several ranks, from one that has loaded what they need: alone each would load for seconds."""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Callable, Sequence
from multiprocessing.context import ForkServerProcess
from typing import Any
from unittest import mock


def start_ranks(serve: Callable[..., None], arguments: Sequence[Sequence[Any]]) -> list[ForkServerProcess]:
    """A process for each rank's arguments."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["rank_imports"])
    # It finds modules on PYTHONPATH, and nowhere else.
    paths = os.pathsep.join(path for path in sys.path if path)
    with mock.patch.dict(os.environ, {"OMP_NUM_THREADS": "1", "PYTHONPATH": paths}):
        processes = [context.Process(target=serve, args=tuple(given)) for given in arguments]
        for process in processes:
            process.start()
    return processes
