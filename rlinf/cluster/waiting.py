"""Waiting for calls on Ray workers: deadlines, signs of life, and which of several failures was first."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import ray
from ray.exceptions import RayError

from rlinf.cluster.errors import WorkerDied, WorkerError, WorkerTimeout
from rlinf.cluster.failure import Failure
from rlinf.cluster.packing import Packed, unpack

if TYPE_CHECKING:
    from rlinf.cluster.ray_group import RayHandle

_GRACE_S = 1.0  # for failures that come on the heels of the first one seen, so that the real first is reported


def wait_first(handles: Sequence[RayHandle], limit: float) -> list[RayHandle]:
    """All handles that are done once at least one is; none when the clock (monotonic) passes ``limit``.

    :raises WorkerTimeout: one of them is past its deadline.
    :raises WorkerDied: a worker whose group is tied together has died.
    """
    refs = [handle.ref for handle in handles]
    beat = min(handle.group_object.heartbeat_s for handle in handles)
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
        for group in {handle.group_object for handle in handles}:
            group.check_alive()


def gather(handles: Sequence[RayHandle]) -> list[Any]:
    """Values in the order of the handles; of several failures the first in time is raised."""
    outcomes: dict[RayHandle, Any] = {}
    while pending := [handle for handle in handles if handle not in outcomes]:
        for handle in wait_first(pending, limit=float("inf")):
            outcomes[handle] = fetch(handle)
        if problems := _problems(outcomes):
            rest = [handle for handle in handles if handle not in outcomes]
            raise _first(problems, rest)
    return [outcomes[handle] for handle in handles]


def fetch(handle: RayHandle) -> Any:
    """The value of a call that is done, or its :class:`Failure`, or the :class:`WorkerDied` (returned, not raised)."""
    try:
        outcome = ray.get(handle.ref)
    except RayError as error:
        return handle.group_object.died(handle.rank, handle.method, error)
    return unpack(outcome, writable=True) if isinstance(outcome, Packed) else outcome


def _problems(outcomes: dict[RayHandle, Any]) -> dict[RayHandle, Failure | WorkerDied]:
    return {handle: value for handle, value in outcomes.items() if isinstance(value, Failure | WorkerDied)}


def _first(problems: dict[RayHandle, Failure | WorkerDied], rest: Sequence[RayHandle]) -> WorkerError:
    """A death counts as earlier than anything raised: what the others raise then is about the lost connection."""
    if rest:
        done, _ = ray.wait([handle.ref for handle in rest], num_returns=len(rest), timeout=_GRACE_S)
        problems = problems | _problems({handle: fetch(handle) for handle in rest if handle.ref in set(done)})
    for value in problems.values():
        if isinstance(value, WorkerDied):
            return value
    raised = {handle: value for handle, value in problems.items() if isinstance(value, Failure)}
    handle = min(raised, key=lambda handle: raised[handle].when)
    return handle.group_object.failure(handle.rank, handle.method, raised[handle].traceback)


def timeout_error(late: Sequence[RayHandle], took_s: float) -> WorkerTimeout:
    """The error for calls past their deadline, with the stack of each worker concerned."""
    first = late[0]
    group = first.group_object
    ranks = ", ".join(str(handle.rank) for handle in late)
    word = "rank" if len(late) == 1 else "ranks"
    lines = [f"{group.name} {word} {ranks} of {group.size} did not finish {first.method} in {took_s:.3g} s"]
    lines += [f"{group.name} rank {handle.rank} is {group.stack(handle.rank)}" for handle in late]
    return WorkerTimeout("\n".join(lines), group=group.name, rank=first.rank, method=first.method)
