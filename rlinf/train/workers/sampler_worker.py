"""A text sampler as the driver calls it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlinf.base.heap import FreedMemory
from rlinf.cluster.weights.receiver import WeightFollower
from rlinf.data.messages import Completion, Metrics, SampleRequest, WeightUpdate
from rlinf.data.ragged import LOGPROBS, TOKENS, RaggedRows
from rlinf.interfaces import Sampler, SamplerSession
from rlinf.models.attention_kernels import use_kernels_of_any_length
from rlinf.models.weight_digest import DigestRequest, Digests

_PORTIONS = 8
"""Messages with responses per call of a sampler: enough to overlap, few enough to cost nothing."""


@dataclass(frozen=True)
class CompletionFacts:
    """The facts of a completion that the driver needs if tokens and log-probabilities stay in the worker."""

    request_id: int
    sample_index: int
    tokens: int
    finite: bool
    """No log-probability is NaN or infinite."""
    finish_reason: str
    versions: list[tuple[int, int]]
    """(version, tokens), as the response goes on."""
    cached_tokens: int

    @classmethod
    def of(cls, completion: Completion) -> CompletionFacts:
        return cls(
            completion.request_id,
            completion.sample_index,
            len(completion.token_ids),
            bool(np.isfinite(completion.logprobs.array).all()),
            completion.finish_reason,
            completion.policy_version.runs(),
            completion.cached_tokens,
        )


class SamplerWorker(WeightFollower):
    """A sampler in its worker."""

    def __init__(self, sampler: Sampler) -> None:
        use_kernels_of_any_length()
        self._sampler = sampler
        self._session: SamplerSession | None = None
        self._freed = FreedMemory()

    def advance(
        self, requests: Sequence[SampleRequest], aborted: Collection[int], max_s: float, through: bool
    ) -> list[Completion]:
        """Run a slice of a session: take ``requests``, end those ``aborted``, and work until one is finished.

        At most ``max_s`` seconds, and as long as that if it works ``through``. The first requests open the session;
        when nothing is left of it, it closes.
        """
        until = time.monotonic() + max_s
        if self._session is None and not requests:
            return []
        session = self._session = self._session or self._sampler.session()
        session.submit(requests)
        done = session.abort(aborted) if aborted else []
        done += session.poll(0.0 if done else max_s)
        while through and session.open and (left := until - time.monotonic()) > 0:
            done += session.poll(left)
        if not session.open:
            self.end_session()
        return done

    def end_session(self) -> None:
        """Drop what is open."""
        if self._session is not None:
            self._session.close()
            self._session = None
            self._freed.release_to_os()

    def stream_portions(self, requests: Sequence[SampleRequest]) -> Iterator[list[Completion]]:
        """All completions, a few messages of those that have finished since the one before."""
        yield from _portions(self._sampler.stream(requests), sum(request.n for request in requests))
        self._freed.release_to_os()

    def stream_remote(self, requests: Sequence[SampleRequest]) -> Iterator[tuple[list[CompletionFacts], RaggedRows]]:
        """Yield the same portions: facts of each completion, and what they are about."""
        for portion in self.stream_portions(requests):
            columns = {
                TOKENS: [completion.token_ids.array for completion in portion],
                LOGPROBS: [completion.logprobs.array for completion in portion],
            }
            yield [CompletionFacts.of(completion) for completion in portion], RaggedRows.of_rows(columns)

    def stream_enough(self, requests: Sequence[SampleRequest], enough: int) -> Iterator[list[Completion]]:
        """Yield the same, but end the other requests as they are ("abort") when all of ``enough`` groups are complete.

        Which ones that are depends on the requests, the weights and the seed, not on time (unless a server answers).
        """
        yield from _portions(self._until_enough(requests, enough), sum(request.n for request in requests))
        self._freed.release_to_os()

    def _until_enough(self, requests: Sequence[SampleRequest], enough: int) -> Iterator[Completion]:
        group_of = {request.request_id: request.group for request in requests}
        waiting: Counter[int | None] = Counter()
        for request in requests:
            waiting[request.group] += request.n
        needed = len(waiting) - enough
        for completion in self._sampler.stream(requests):
            yield completion
            waiting[group_of[completion.request_id]] -= 1
            open_groups = {group for group, count in waiting.items() if count}
            if open_groups and len(open_groups) <= needed:
                yield from self._sampler.abort([name for name, group in group_of.items() if group in open_groups])
                needed = -1

    def answer(self, requests: Sequence[SampleRequest]) -> list[Completion]:
        """All completions in the order of ``requests``; none while a session is open, which a sampler has one of."""
        return [] if self._session is not None else self._sampler.sample(requests)

    def load(self, update: WeightUpdate) -> Metrics:
        return self._sampler.load(update)

    def follow(self, order: str, options: Mapping[str, Any], *, version: int) -> None:
        follow = getattr(self._sampler, "follow_transfer", None)
        if follow is None:
            super().follow(order, options, version=version)
        else:
            follow(order, options, version=version)

    def held_digests(self, requests: Mapping[str, DigestRequest]) -> Digests | str:
        read = getattr(self._sampler, "held_digests", None)
        if read is None:
            return f"{type(self._sampler).__name__} has no method held_digests"
        held: Digests | str = read(requests)
        return held

    def takes_adapters(self) -> bool:
        return bool(getattr(self._sampler, "takes_adapters", False))

    def sleep(self) -> None:
        self._sampler.sleep()

    def wake(self) -> None:
        self._sampler.wake()


def _portions(completions: Iterator[Completion], count: int) -> Iterator[list[Completion]]:
    """``count`` completions in a few portions."""
    enough = -(-count // _PORTIONS)
    portion: list[Completion] = []
    for completion in completions:
        portion.append(completion)
        if len(portion) >= enough:
            yield portion
            portion = []
    if portion:
        yield portion
