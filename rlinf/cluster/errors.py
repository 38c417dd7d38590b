"""Errors of workers, each with the facts that a caller acts on."""

from __future__ import annotations

from rlinf.base.errors import UserError


class ClusterError(RuntimeError):
    """Base of everything that the cluster layer raises on its own account."""


class UnreachableError(ClusterError, UserError):
    """There is no cluster at the address."""


class ClusterStartError(ClusterError):
    """Ray did not come up on this machine."""


class ClusterLost(ClusterError):
    """The service that connects the workers on this machine is gone, and all of them with it: none can be restarted.

    ``raylet`` is the process id of Ray's daemon; ``who`` describes what was going on, in a sentence.
    """

    def __init__(self, raylet: int, who: str) -> None:
        super().__init__(
            f"Ray is lost on this machine: its raylet (pid {raylet}) ended or does not answer (killed, stopped, or out "
            f"of memory), and all workers went with it. {who}"
        )


class PlacementError(ClusterError, UserError):
    """The workers requested do not fit on the machines; the message carries the arithmetic."""


class WorkerError(ClusterError):
    """A worker raised. The message is one line that names the worker, then the worker's own traceback, once.

    ``WorkerDied`` and ``WorkerTimeout`` are kinds of it, so one ``except WorkerError`` catches whatever a worker
    did.
    """

    def __init__(self, message: str, *, group: str, rank: int, method: str) -> None:
        super().__init__(message)
        self.group = group
        self.rank = rank
        self.method = method


class WorkerRefused(WorkerError, UserError):
    """A worker raised a UserError: the message is its words, without the worker or line of code that raised it."""


class WorkerDied(WorkerError):
    """The worker's process is gone (killed, out of memory, crashed in native code, or its node was lost)."""


class WorkerTimeout(WorkerError):
    """The worker lives, but a call went past its deadline; the message shows where the worker is."""


class ValueLost(WorkerError):
    """A value that another worker had made for this call is gone, with the node that it lay on."""


WORKER_LOST = (WorkerDied, WorkerTimeout)
"""What ends a worker that can be restarted."""
