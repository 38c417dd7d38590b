"""The samplers of a run as one: they share the prompts, and one that dies costs only what it had not finished."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import numpy as np

from rlinf.base.errors import OtherPolicy
from rlinf.cluster import WORKER_LOST, Cluster, Handle, Stream, WorkerGroup
from rlinf.cluster.pool import PolicyPool
from rlinf.data.messages import Completion, SampleRequest
from rlinf.data.ragged import LOGPROBS, TOKENS, RemoteArray
from rlinf.data.split import split_evenly
from rlinf.data.token_array import RunLengthArray, TokenArray
from rlinf.samplers.requests import in_request_order
from rlinf.train.workers.kept_values import RemoteRowStore
from rlinf.train.workers.sampler_session import SLICE_S, PoolSession
from rlinf.train.workers.sampler_worker import CompletionFacts


@dataclass
class _Part:
    """One worker's requests of a call, and which of their samples are here already."""

    requests: Sequence[SampleRequest]
    done: set[tuple[int, int]] = field(default_factory=set)

    def rest(self) -> tuple[list[SampleRequest], list[int]]:
        """The remaining requests, numbered from 0, and the id that each had.

        A response is a function of its key and sample number, so it does not matter with which others it is asked for.
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
        """Responses that were asked for again, since a worker died over them."""

    def sample(self, requests: Sequence[SampleRequest]) -> list[Completion]:
        """All completions of all requests, ordered by (position of the request, sample index)."""
        return in_request_order(requests, self.stream(requests))

    def stream(self, requests: Sequence[SampleRequest]) -> Iterator[Completion]:
        """The same completions as they come from the workers."""
        parts = {rank: _Part(mine) for rank, mine in enumerate(self._split(requests)) if mine}
        return self._read(parts, {rank: self._start(rank, part) for rank, part in parts.items()})

    def stream_remote(self, requests: Sequence[SampleRequest]) -> Iterator[Completion]:
        """The same, with tokens and log-probabilities left where they were made (`ragged.RemoteArray`)."""
        parts = {rank: _Part(mine) for rank, mine in enumerate(self._split(requests)) if mine}
        kept = {rank: RemoteRowStore(self.group, rank) for rank in parts}
        return self._read(parts, {rank: self._start(rank, part, kept[rank]) for rank, part in parts.items()}, kept)

    def session(self, *, slice_s: float = SLICE_S) -> PoolSession:
        """A session with all workers, which look for new requests every ``slice_s`` seconds."""
        return PoolSession(self, slice_s=slice_s)

    def _split(self, requests: Sequence[SampleRequest]) -> list[Sequence[SampleRequest]]:
        """The requests of each worker."""
        return [requests[part] for part in split_evenly(len(requests), self.size)]

    def stream_enough(
        self, requests: Sequence[SampleRequest], groups: Sequence[int], enough: int
    ) -> Iterator[Completion]:
        """Completions until ``enough`` groups are complete, the others then as far as they are ("abort").

        Each worker has whole groups and its share of ``enough``. One that is restarted finishes all it has left.
        """
        order = list(dict.fromkeys(groups))
        parts: dict[int, _Part] = {}
        running: dict[int, tuple[Stream, list[int]]] = {}
        for rank, share in enumerate(split_evenly(len(order), self.size)):
            mine = set(order[share])
            chosen = [place for place, group in enumerate(groups) if group in mine]
            if chosen:
                wanted = [end * enough // len(order) for end in (share.start, share.stop)]
                parts[rank] = _Part([requests[place] for place in chosen])
                left, names = parts[rank].rest()
                given = [groups[place] for place in chosen]
                stream = self.group.stream(rank, "stream_enough", left, given, wanted[1] - wanted[0])
                running[rank] = (stream, names)
        return self._read(parts, running)

    def _read(
        self,
        parts: dict[int, _Part],
        running: dict[int, tuple[Stream, list[int]]],
        kept: Mapping[int, RemoteRowStore] = MappingProxyType({}),
    ) -> Iterator[Completion]:
        """The messages of the workers; one that is lost is restarted and asked for what is missing of its part.

        ``kept``: of workers whose messages are facts, and that keep what these are about.
        """
        try:
            while running:
                try:
                    arrived = self.cluster.wait_any([stream for stream, _ in running.values()])
                    for stream in arrived:
                        rank = stream.rank
                        portion = next(stream, None)
                        if portion is None:
                            del running[rank]
                            continue
                        for given in completions_of(portion, kept[rank]) if rank in kept else portion:
                            self.require_current(rank, given)
                            completion = replace(given, request_id=running[rank][1][given.request_id])
                            parts[rank].done.add((completion.request_id, completion.sample_index))
                            yield completion
                except WORKER_LOST as error:
                    self.restart(error.rank, error)
                    running[error.rank] = self._start(error.rank, parts[error.rank], kept.get(error.rank))
                    self.redone += sum(request.n for request in parts[error.rank].rest()[0])
        finally:
            for stream, _ in running.values():
                stream.close()

    def require_current(self, rank: int, completion: Completion) -> None:
        """Raises OtherPolicy where tokens name other weights than those that were sent last: none came since."""
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

    def _start(self, rank: int, part: _Part, kept: RemoteRowStore | None = None) -> tuple[Stream, list[int]]:
        requests, names = part.rest()
        if kept is not None:
            return self.group.stream_remote(rank, "stream_remote", requests), names
        return self.group.stream(rank, "stream_portions", requests), names


def completions_of(portion: tuple[Sequence[CompletionFacts], Handle], kept: RemoteRowStore) -> Iterator[Completion]:
    """The completions that a worker keeps the runs of. What is not finite is looked at: it comes here."""
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
