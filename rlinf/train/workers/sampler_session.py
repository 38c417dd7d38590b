"""A session with all samplers of a run: a conversation stays with the sampler that has its prefix in its cache."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from rlinf.cluster import WORKER_LOST, Cluster, Handle, WorkerGroup
from rlinf.data.messages import Completion, SampleRequest

SLICE_S = 0.02
"""How long a sampler works before it checks for new requests."""
_QUEUED = 2
"""Slices that a sampler is given at a time, so that it has work while the driver takes in the first."""


class _RestartingWorkers(Protocol):
    """Samplers that are restarted, with their weights, when they die."""

    group: WorkerGroup
    cluster: Cluster
    redone: int

    def restart(self, rank: int, error: Exception) -> object: ...


@dataclass
class _Sampler:
    """The requests that one worker has."""

    new: list[SampleRequest] = field(default_factory=list)
    aborted: list[int] = field(default_factory=list)
    """What the next slice ends."""
    ending: set[int] = field(default_factory=set)
    """What one of the slices ends."""
    left: dict[int, tuple[SampleRequest, set[int]]] = field(default_factory=dict)
    """By the id that the worker has: the request, and the samples that are still to come."""
    slices: deque[Handle] = field(default_factory=deque)
    """Oldest first."""

    @property
    def open(self) -> int:
        return sum(len(samples) for _, samples in self.left.values())


class PoolSession:
    """A :class:`rlinf.interfaces.SamplerSession` over several workers.

    Workers receive a short slice of work at a time, so that new requests, aborts and weights come in between. If
    they run in parallel with the driver they have the next slice already, and work through each. In one process a
    slice ends with the first response that is finished, which no clock decides. A worker that dies is restarted
    and receives what is missing again: responses do not depend on what else is open.
    """

    def __init__(self, pool: _RestartingWorkers, *, slice_s: float = SLICE_S) -> None:
        self._pool, self._slice_s = pool, slice_s
        self._samplers = [_Sampler() for _ in range(pool.group.size)]
        self._names: dict[int, int] = {}
        """The id that a worker has -> that of the caller."""
        self._next_name = 0

    @property
    def open(self) -> int:
        """Responses that are not handed out yet."""
        return sum(sampler.open for sampler in self._samplers)

    def submit(self, requests: Sequence[SampleRequest]) -> None:
        """Submit requests: those of a group go to the same worker, others to the one with the fewest open.

        Workers in parallel with the driver begin at once, whenever :meth:`poll` is called.
        """
        for request in requests:
            if request.group is not None:
                sampler = self._samplers[request.group % len(self._samplers)]
            else:
                sampler = min(self._samplers, key=lambda one: one.open)
            samples = set(range(request.first_sample, request.first_sample + request.n))
            self._request(sampler, request, samples, request.request_id)
        if self._pool.cluster.concurrent:
            self._set_to_work()

    def poll(self, max_s: float) -> list[Completion]:
        """Completions since the last call; waits for at most ``max_s`` seconds (longer in one process)."""
        self._set_to_work()
        under_way = {one.slices[0]: rank for rank, one in enumerate(self._samplers) if one.slices}
        if not under_way:
            return []
        done: list[Completion] = []
        for handle in self._pool.cluster.wait_any(list(under_way), timeout=max_s):
            done += self._take(under_way[handle])
        if self._pool.cluster.concurrent:
            self._set_to_work()
        return done

    def abort(self, request_ids: Collection[int]) -> list[Completion]:
        """End these requests; what there is of them comes with the next :meth:`poll`, finish reason "abort"."""
        for sampler in self._samplers:
            names = [name for name in sampler.left if self._names[name] in request_ids and name not in sampler.ending]
            sampler.aborted += names
            sampler.ending.update(names)
        return []

    def close(self) -> None:
        """End all requests, and wait until no sampler works on any."""
        for rank, sampler in enumerate(self._samplers):
            while sampler.slices:
                self._take(rank)
            if sampler.left:
                self._pool.group.call_one(rank, "end_session")
                sampler.left.clear()

    def _request(self, sampler: _Sampler, request: SampleRequest, samples: Collection[int], caller: int) -> None:
        """Request ``samples`` of a request, in as many requests as they have gaps."""
        runs: list[list[int]] = []
        for sample in sorted(samples):
            if runs and runs[-1][-1] + 1 == sample:
                runs[-1].append(sample)
            else:
                runs.append([sample])
        for run in runs:
            name, self._next_name = self._next_name, self._next_name + 1
            part = replace(request, request_id=name, n=len(run), first_sample=run[0])
            self._names[name] = caller
            sampler.new.append(part)
            sampler.left[name] = (part, set(run))

    def _set_to_work(self) -> None:
        """Give every worker that has something to do its next slices, and at once the one in which requests end."""
        concurrent = self._pool.cluster.concurrent
        for rank, sampler in enumerate(self._samplers):
            while sampler.left and (len(sampler.slices) < (_QUEUED if concurrent else 1) or sampler.aborted):
                new, sampler.new = sampler.new, []
                aborted, sampler.aborted = sampler.aborted, []
                arguments = self._slice_s, concurrent
                sampler.slices.append(self._pool.group.submit_one(rank, "advance", new, aborted, *arguments))

    def _take(self, rank: int) -> list[Completion]:
        """Return the completions of the worker's oldest slice."""
        sampler = self._samplers[rank]
        try:
            finished: list[Completion] = sampler.slices.popleft().result()
        except WORKER_LOST as error:
            self._pool.restart(rank, error)
            self._pool.redone += sampler.open
            left = sampler.left
            sampler = self._samplers[rank] = _Sampler()
            for name, (request, samples) in left.items():
                self._request(sampler, request, samples, self._names.pop(name))
            return []
        done = []
        for completion in finished:
            name = completion.request_id
            samples = sampler.left[name][1]
            samples.discard(completion.sample_index)
            done.append(replace(completion, request_id=self._names[name]))
            if not samples:
                del sampler.left[name], self._names[name]
                sampler.ending.discard(name)
        return done
