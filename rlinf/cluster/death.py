"""Reconstructs why a worker's process is gone."""

from __future__ import annotations

import re
from collections import deque
from pathlib import Path

import ray
from ray.exceptions import OutOfMemoryError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from rlinf.cluster.host import HostProcess

_LINES = 10
_NATIVE_LOG = re.compile(r"\[\d{4}-\d\d-\d\d [\d:,]+ [A-Z] \d+ \d+\]|\[(failure_signal|.*core_worker)|\*\*\* SIG")
"""How lines begin that Ray's own native code writes into a worker's standard error."""
_READ_S = 5.0


def describe_death(process: HostProcess | None, error: RayError) -> str:
    """Describe process, node, the likely cause, and the last lines it wrote to standard error."""
    if process is None:
        return f"before it was up: {error}"
    text, cause = str(error), "its process ended (killed, out of memory, or crashed in native code)"
    if isinstance(error, OutOfMemoryError) or "memory monitor" in text or "low on memory" in text:
        cause = "killed because its node ran out of memory"
    elif node_was_lost(error):
        cause = "its node was lost"
    head = f"(pid {process.pid} on {process.address}): {cause}"
    tail = _last_words(process)
    return f"{head}\nlast lines of its stderr:\n{tail}" if tail else head


def node_was_lost(error: RayError) -> bool:
    """Return whether Ray reports the loss of the worker's or owner's node.

    "worker process has died" is about one process."""
    return re.search(r"\bnode (has died|has crashed|was dead|is dead)", str(error)) is not None


def _last_words(process: HostProcess) -> str:
    if not process.stderr:
        return ""
    if process.node_id == ray.get_runtime_context().get_node_id():
        return _tail(process.stderr)
    here = NodeAffinitySchedulingStrategy(process.node_id, soft=False)
    task = ray.remote(_tail).options(num_cpus=0, scheduling_strategy=here, max_retries=0)
    try:
        return str(ray.get(task.remote(process.stderr), timeout=_READ_S))
    except RayError:  # the node went with the worker
        return ""


def _tail(path: str) -> str:
    try:
        with Path(path).open(errors="replace") as lines:
            return "".join(deque((line for line in lines if not _NATIVE_LOG.match(line)), maxlen=_LINES)).rstrip()
    except OSError:
        return ""
