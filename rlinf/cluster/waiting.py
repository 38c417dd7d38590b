"""Waiting for calls on Ray workers: deadlines, signs of life, and which of several failures was first."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

import ray
from ray.exceptions import ObjectLostError, OutOfMemoryError, RayActorError, RayError

from rlinf.cluster.errors import ValueLost, WorkerError, WorkerTimeout
from rlinf.cluster.failure import Failure
from rlinf.cluster.packing import Packed, unpack
from rlinf.schema.cluster import ClusterConfig

_SHOWN = 4
_GRACE_S = 1.0  # for failures that come on the heels of the first one seen, so that the real first is reported


class CallOwner(Protocol):
    """The group of actors that a call is on."""

    @property
    def name(self) -> str: ...

    @property
    def size(self) -> int: ...

    @property
    def config(self) -> ClusterConfig: ...

    def check_alive(self, waited_for: Sequence[int]) -> None:
        """Raise an error if the process of one of ``waited_for`` stands still or its group has lost a member."""

    def died(self, rank: int, method: str, error: RayError) -> WorkerError:
        """Make the error of a worker that died over a call."""

    def failure(self, rank: int, method: str, failure: Failure) -> WorkerError:
        """Make the error of a call that raised."""

    def stacks(self, ranks: Sequence[int]) -> Sequence[str]:
        """Describe the line of code that each of ``ranks`` is at."""


class _PendingCall(Protocol):
    """A call on an actor; ``started`` and ``deadline`` are on the monotonic clock, seconds."""

    @property
    def workers(self) -> CallOwner: ...

    group: str
    rank: int
    method: str
    ref: ray.ObjectRef
    started: float
    deadline: float


Call = TypeVar("Call", bound=_PendingCall)


def wait_first(handles: Sequence[Call], limit: float = float("inf")) -> list[Call]:
    """All handles that are done once at least one is; none when the clock (monotonic) passes ``limit``.

    :raises WorkerTimeout: one of them is past its deadline, or a worker's process stands still.
    :raises WorkerDied: a worker whose group is tied together has died.
    """
    refs = [handle.ref for handle in handles]
    beat = min(handle.workers.config.heartbeat_s for handle in handles)
    stop = min(limit, *(handle.deadline for handle in handles))
    while True:
        wait = max(0.0, min(beat, stop - time.monotonic()))
        ready, _ = ray.wait(refs, num_returns=1, timeout=wait)
        if ready:
            done = set(ray.wait(refs, num_returns=len(refs), timeout=0)[0])
            return [handle for handle in handles if handle.ref in done]
        now = time.monotonic()
        late = [handle for handle in handles if handle.deadline <= now]
        if late:
            raise timeout_error(late, late[0].deadline - late[0].started)
        if now >= limit:
            return []
        for group in {handle.workers for handle in handles}:
            group.check_alive([handle.rank for handle in handles if handle.workers is group])


def gather(handles: Sequence[_PendingCall]) -> list[Any]:
    """Values in the order of the handles; of several failures the first in time is raised."""
    outcomes: dict[_PendingCall, Any] = {}
    while pending := [handle for handle in handles if handle not in outcomes]:
        for handle in wait_first(pending):
            outcomes[handle] = fetch(handle)
        if problems := _problems(outcomes):
            rest = [handle for handle in handles if handle not in outcomes]
            raise _first(problems, rest)
    return [outcomes[handle] for handle in handles]


def fetch(handle: _PendingCall) -> Any:
    """Return the value of a call that is done, or its :class:`Failure`, :class:`WorkerDied` or :class:`ValueLost`."""
    try:
        outcome = ray.get(handle.ref)
    except (RayActorError, OutOfMemoryError) as error:
        return handle.workers.died(handle.rank, handle.method, error)
    except ObjectLostError as error:
        words = f"{handle.group} rank {handle.rank}: a value of {handle.method} was lost with its node: {error}"
        return ValueLost(words, group=handle.group, rank=handle.rank, method=handle.method)
    except RayError as error:  # its value cannot be had: the store is full, for instance
        return Failure(traceback=str(error), when=time.time())
    return unpack(outcome, writable=True) if isinstance(outcome, Packed) else outcome


def _problems(outcomes: dict[_PendingCall, Any]) -> dict[_PendingCall, Failure | WorkerError]:
    return {handle: value for handle, value in outcomes.items() if isinstance(value, Failure | WorkerError)}


def _first(problems: dict[_PendingCall, Failure | WorkerError], rest: Sequence[_PendingCall]) -> WorkerError:
    """Choose the failure that came first.

    A death counts as earlier than anything raised: what the others raise then is about the lost connection."""
    if rest:
        done, _ = ray.wait([handle.ref for handle in rest], num_returns=len(rest), timeout=_GRACE_S)
        problems = problems | _problems({handle: fetch(handle) for handle in rest if handle.ref in set(done)})
    for value in problems.values():
        if isinstance(value, WorkerError):
            return value
    raised = {handle: value for handle, value in problems.items() if isinstance(value, Failure)}
    handle = min(raised, key=lambda handle: raised[handle].when)
    return handle.workers.failure(handle.rank, handle.method, raised[handle])


def timeout_error(late: Sequence[_PendingCall], took_s: float) -> WorkerTimeout:
    """Build the error for calls that took too long, with the stack of each worker concerned (the first few of many)."""
    first, group = late[0], late[0].workers
    late = [handle for handle in late if handle.workers is group]
    ranks = ", ".join(str(handle.rank) for handle in late)
    who = f"{group.name} {'rank' if len(late) == 1 else 'ranks'} {ranks} of {group.size}"
    if first.method in ("start", "build"):
        what = f"not up after {group.config.start_timeout_s:g} s (cluster.start_timeout_s)"
    else:
        limit = " (cluster.call_timeout_s)" if first.deadline <= time.monotonic() else ""
        what = f"not through with {first.method} after {took_s:.3g} s{limit}"
    shown = [handle.rank for handle in late[:_SHOWN]]
    lines = [f"{who}: {what}"]
    lines += [f"{group.name} rank {rank} is {where}" for rank, where in zip(shown, group.stacks(shown), strict=True)]
    return WorkerTimeout("\n".join(lines), group=group.name, rank=first.rank, method=first.method)
