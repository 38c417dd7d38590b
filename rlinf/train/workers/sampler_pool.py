"""The samplers of a run as one: they share the prompts, and one that dies costs only what it had not finished."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from rlinf.base.errors import OtherPolicy
from rlinf.cluster import WORKER_LOST, Cluster, Handle, Stream, WorkerGroup
from rlinf.cluster.pool import PolicyPool
from rlinf.data.messages import Completion, SampleRequest
from rlinf.data.ragged import LOGPROBS, TOKENS, RemoteArray
from rlinf.data.split import split_evenly
from rlinf.data.token_array import RunLengthArray, TokenArray
from rlinf.samplers.requests import answered, in_request_order
from rlinf.train.workers.kept_values import RemoteRowStore
from rlinf.train.workers.sampler_session import SLICE_S, PoolSession
from rlinf.train.workers.sampler_worker import CompletionFacts


@dataclass
class _Part:
    """One worker's requests of a call, and which of their samples are here already."""

    requests: Sequence[SampleRequest]
    done: set[tuple[int, int]] = field(default_factory=set)
    enough: int | None = None
    """Groups after which the worker ends the others."""

    @property
    def open(self) -> int:
        """Samples that are still to come."""
        return sum(request.n for request in self.requests) - len(self.done)

    def rest(self) -> tuple[list[SampleRequest], list[int]]:
        """Return the remaining requests, numbered from 0, and the id that each had.

        A response is a function of its key and sample number, so the other requests of its call do not matter.
        """
        left: list[SampleRequest] = []
        names: list[int] = []
        for request in self.requests:
            samples = range(request.first_sample, request.first_sample + request.n)
            missing = [sample for sample in samples if (request.request_id, sample) not in self.done]
            for sample in missing:
                last = left[-1] if left and names[-1] == request.request_id else None
                if last is not None and last.first_sample + last.n == sample:
                    left[-1] = replace(last, n=last.n + 1)
                    continue
                left.append(replace(request, request_id=len(left), n=1, first_sample=sample))
                names.append(request.request_id)
        return left, names


class SamplerPool(PolicyPool):
    """Samplers of a group as one :class:`rlinf.interfaces.Sampler`, but for the weights: a transport brings them."""

    def __init__(self, group: WorkerGroup, cluster: Cluster) -> None:
        super().__init__(group)
        self.cluster = cluster
        self.redone = 0
        """Responses that were requested again, since a worker died over them."""

    def sample(self, requests: Sequence[SampleRequest]) -> list[Completion]:
        """All completions of all requests, ordered by (position of the request, sample index)."""
        return in_request_order(requests, self.stream(requests))

    def stream(self, requests: Sequence[SampleRequest]) -> Iterator[Completion]:
        """Yield the same completions as they come from the workers."""
        return answered(self.round(), requests)

    def round(self, *, remote: bool = False, enough: int | None = None) -> RoundSession:
        """Open a session for one call of :meth:`RoundSession.submit`, which every worker answers in one stream.

        ``remote``: tokens and log-probabilities stay in the workers that made them (`ragged.RemoteArray`).
        ``enough``: when that number of groups is complete, the other requests end as they are ("abort").
        """
        return RoundSession(self, remote=remote, enough=enough)

    def session(self, *, slice_s: float = SLICE_S) -> PoolSession:
        """Open a session with all workers, which check for new requests every ``slice_s`` seconds."""
        return PoolSession(self, slice_s=slice_s)

    def require_current(self, rank: int, completion: Completion) -> None:
        """Raise OtherPolicy if tokens name other weights than those that were sent last: none came since."""
        for version, tokens in completion.policy_version.runs():
            if version != self.version:
                raise OtherPolicy(
                    f"{self.group.name} {rank} answered with weights {version} ({tokens} tokens of a response), and "
                    f"weights {self.version} were sent to it. With a sampler of your own, see that its load() takes "
                    "every update and that its completions name the version that chose their tokens."
                )

    def sleep(self) -> None:
        """Frees the samplers' device memory until :meth:`wake`."""
        self.group.call("sleep")

    def wake(self) -> None:
        self.group.call("wake")


class RoundSession:
    """A :class:`rlinf.interfaces.SamplerSession` of one round of requests, split among the workers.

    A worker that is lost is restarted and receives what is missing of its part again.
    """

    def __init__(self, pool: SamplerPool, *, remote: bool, enough: int | None) -> None:
        self._pool, self.remote, self._enough = pool, remote, enough
        self._parts: dict[int, _Part] = {}
        self._running: dict[int, tuple[Stream, list[int]]] = {}
        self._kept: dict[int, RemoteRowStore] = {}
        """If rows are remote: where those of each worker are."""

    @property
    def open(self) -> int:
        """Responses that are not handed out yet."""
        return sum(part.open for part in self._parts.values())

    def submit(self, requests: Sequence[SampleRequest]) -> None:
        """Start the round. With ``enough`` each worker has whole groups, and its part of that number."""
        pool = self._pool
        if self._enough is None:
            slices = split_evenly(len(requests), pool.size)
            self._parts = {rank: _Part(requests[part]) for rank, part in enumerate(slices) if requests[part]}
        else:
            groups = list(dict.fromkeys(request.group for request in requests))
            for rank, share in enumerate(split_evenly(len(groups), pool.size)):
                mine = set(groups[share])
                ends = [end * self._enough // len(groups) for end in (share.start, share.stop)] if mine else [0, 0]
                part = _Part([one for one in requests if one.group in mine], enough=ends[1] - ends[0])
                if part.requests:
                    self._parts[rank] = part
        self._kept = {rank: RemoteRowStore(pool.group, rank) for rank in self._parts} if self.remote else {}
        self._running = {rank: self._start(rank) for rank in self._parts}

    def poll(self, max_s: float) -> list[Completion]:
        """Return the completions since the last call; waits for at most ``max_s`` seconds (longer in one process)."""
        done: list[Completion] = []
        try:
            streams = [stream for stream, _ in self._running.values()]
            limit = None if max_s == math.inf else max_s
            for stream in self._pool.cluster.wait_any(streams, timeout=limit) if streams else ():
                done += self._portion(stream.rank, stream)
        except WORKER_LOST as error:
            self._pool.restart(error.rank, error)
            # A worker that comes back finishes all that it has left.
            self._parts[error.rank].enough = None
            self._running[error.rank] = self._start(error.rank)
            self._pool.redone += self._parts[error.rank].open
        return done

    def _portion(self, rank: int, stream: Stream) -> list[Completion]:
        """Return the completions of a worker's next message."""
        portion = next(stream, None)
        if portion is None:
            del self._running[rank]
            return []
        done = []
        for one in completions_of(portion, self._kept[rank]) if rank in self._kept else portion:
            self._pool.require_current(rank, one)
            completion = replace(one, request_id=self._running[rank][1][one.request_id])
            self._parts[rank].done.add((completion.request_id, completion.sample_index))
            done.append(completion)
        return done

    def abort(self, request_ids: Collection[int]) -> list[Completion]:
        """Return nothing: a round goes on to its end."""
        return []

    def close(self) -> None:
        """End the round."""
        while self._running and not self.open:
            # The workers have nothing left: they come to the end of their streams.
            self.poll(math.inf)
        for stream, _ in self._running.values():
            stream.close()
        self._running, self._parts = {}, {}

    def _start(self, rank: int) -> tuple[Stream, list[int]]:
        group, part = self._pool.group, self._parts[rank]
        requests, names = part.rest()
        if self.remote:
            return group.stream(rank, "stream_remote", requests, pairs=True), names
        if part.enough is not None:
            return group.stream(rank, "stream_enough", requests, part.enough), names
        return group.stream(rank, "stream_portions", requests), names


def completions_of(portion: tuple[Sequence[CompletionFacts], Handle], kept: RemoteRowStore) -> Iterator[Completion]:
    """Yield the completions that a worker keeps the runs of. What is not finite is examined: it comes here."""
    facts, runs = portion
    for row, one in enumerate(facts, kept.add(runs, len(facts))):
        tokens: TokenArray[int] = RemoteArray(kept, row, TOKENS, one.tokens, np.int32)
        logprobs: TokenArray[float] = RemoteArray(kept, row, LOGPROBS, one.tokens, np.float32)
        if not one.finite:
            tokens, logprobs = TokenArray(tokens.array), TokenArray(logprobs.array)
        versions = RunLengthArray(one.versions, np.int32)
        yield Completion(
            one.request_id, one.sample_index, tokens, logprobs, one.finish_reason, versions, one.cached_tokens
        )
