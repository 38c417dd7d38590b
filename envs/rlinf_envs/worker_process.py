"""The other end of :mod:`rlinf_envs.workers`, run as a module with descriptor, function and limits of memory in bytes:
of address space, and of data."""

from __future__ import annotations

import importlib
import resource
import signal
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from rlinf.base.child_process import die_with_parent

_PATIENCE = 8.0
"""The kernel's wall clock waits this many times the CPU time, longer than the parent does: it is the last resort."""


def serve(connection: Connection, function: Callable[..., Any]) -> None:
    """Answers calls until the parent closes the connection."""
    # The default action of the timers ends the process, also inside a long C call that never returns to Python.
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    connection.send(("ready", None))
    while True:
        try:
            timeout_s, arguments = connection.recv()
        except EOFError:
            return
        signal.setitimer(signal.ITIMER_PROF, timeout_s)
        signal.setitimer(signal.ITIMER_REAL, timeout_s * _PATIENCE)
        try:
            answer = ("done", function(*arguments))
        except Exception as error:
            answer = ("error", f"{type(error).__name__}: {error}"[:500])
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        try:
            connection.send(answer)
        except OSError:
            return


def main(arguments: list[str]) -> None:
    """Load the function, then serve."""
    die_with_parent()
    descriptor, target, limits = int(arguments[0]), arguments[1], map(int, arguments[2:])
    module_name, _, name = target.partition(":")
    function: Callable[..., Any] = getattr(importlib.import_module(module_name), name)
    for kind, limit in zip((resource.RLIMIT_AS, resource.RLIMIT_DATA), limits, strict=True):
        if limit:
            resource.setrlimit(kind, (limit, limit))
    serve(Connection(descriptor), function)


if __name__ == "__main__":
    main(sys.argv[1:])
