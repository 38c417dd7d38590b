"""The workers of a text run as the driver calls them: a learner's rank and a sampler, the ends of every transport."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rlinf.interfaces import Sampler
from rlinf.types import Completion, Metrics, SampleRequest, WeightUpdate

if TYPE_CHECKING:
    from rlinf.cluster.weights.broadcast import Broadcast
    from rlinf.cluster.weights.segment import SegmentAddress, SegmentReader, SegmentWriter

_PORTIONS = 8
"""Messages with responses per call of a sampler: enough to overlap, few enough to cost nothing."""


class LearnerWorker:
    """A rank of the learner, as :class:`~rlinf.train.build.learner.StagedLearner` has it, with ways to send weights.

    Methods about weights are called on all ranks, since gathering a sharded model takes them all; rank 0 sends, part
    after part. A learner that sleeps is woken by any call of its methods: for its weights, it keeps the rest asleep.
    """

    def __init__(self, learner: Any, *, rank: int, bucket_bytes: int | None = None) -> None:
        """``bucket_bytes``: the size of a part; None is all weights at once."""
        self._asleep = False
        self._learner, self._rank = learner, rank
        self._bucket_bytes = bucket_bytes
        self._segment: SegmentWriter | None = None
        self._store: Any = None
        self._sent: list[WeightUpdate] = []
        self._group: Broadcast | None = None

    def sleep(self, *, keep_weights: bool) -> Metrics:
        """Moves to the host what ``learner.offload`` names."""
        self._asleep = True
        metrics: Metrics = self._learner.sleep(keep_weights=keep_weights)
        return metrics

    def _awake(self) -> Any:
        if self._asleep:
            self._learner.wake()
            self._asleep = False
        return self._learner

    def weight_parts(self) -> int:
        """In how many parts the weights travel."""
        return 1 if self._bucket_bytes is None else int(self._learner.weight_parts(self._bucket_bytes))

    def weights(self, *, version: int, part: int = 0) -> WeightUpdate:
        """One part of the weights."""
        if self._asleep:
            self._learner.wake(weights_only=True)
        if self._bucket_bytes is None:
            update: WeightUpdate = self._learner.weights(version=version)
        else:
            update = self._learner.weights(version=version, part=part, bucket_bytes=self._bucket_bytes)
        return update

    def write_weights(self, *, version: int, part: int, keep: bool = False) -> SegmentAddress | None:
        """Puts one part of the weights into shared memory, in the place of the one before; ``keep`` as below."""
        from rlinf.cluster.weights.segment import SegmentWriter

        update = self.weights(version=version, part=part)
        if keep:
            self._keep_part(update, part)
        if self._rank != 0:
            return None
        if self._segment is None:
            self._segment = SegmentWriter()
        return self._segment.write(update)

    def host_broadcast(self, *, timeout_s: float) -> int | None:
        """Opens the place where receivers meet; its port."""
        from rlinf.cluster.weights.broadcast import Broadcast

        if self._rank != 0:
            return None
        self._group, self._store = None, Broadcast.host(timeout_s=timeout_s)
        return int(self._store.port)

    def open_broadcast(self, *, size: int, device: str, timeout_s: float) -> str | None:
        """Meets the receivers; what went wrong, or None."""
        import torch

        from rlinf.cluster.weights.broadcast import Broadcast, BroadcastError

        if self._rank == 0:
            try:
                self._group = Broadcast(
                    self._store, rank=0, size=size, device=torch.device(device), timeout_s=timeout_s
                )
            except BroadcastError as error:
                return str(error)
        return None

    def broadcast_weights(self, *, version: int, part: int, keep: bool) -> str | None:
        """Sends one part of the weights; what went wrong, or None (an exception would end all ranks of a learner).

        ``keep`` holds a copy for :meth:`sent_weights`: the learner's own may have moved on by then.
        """
        from rlinf.cluster.weights.broadcast import BroadcastError

        update = self.weights(version=version, part=part)
        if keep:
            self._keep_part(update, part)
        if self._group is not None:
            try:
                self._group.send(update)
            except BroadcastError as error:
                self._group = None
                return str(error)
        return None

    def _keep_part(self, update: WeightUpdate, part: int) -> None:
        copied = {name: tensor.clone() for name, tensor in update.tensors.items()}
        self._sent = [*self._sent[:part], replace(update, tensors=copied)]

    def sent_weights(self, *, version: int, part: int) -> WeightUpdate:
        """The part of the weights that was sent as ``version``: a kept copy, or what the learner has now."""
        if part < len(self._sent) and self._sent[part].version == version:
            return self._sent[part]
        return self.weights(version=version, part=part)

    def __getattr__(self, name: str) -> Any:
        """The learner's own attribute. Looking one up wakes nobody; calling a method does."""
        found = getattr(self._learner, name)
        if not callable(found):
            return found

        @functools.wraps(found)
        def awake(*args: Any, **options: Any) -> Any:
            return getattr(self._awake(), name)(*args, **options)

        return awake


class SamplerWorker:
    """A sampler in its worker."""

    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler
        self._segment: SegmentReader | None = None
        self._group: Broadcast | None = None

    def stream_portions(self, requests: Sequence[SampleRequest]) -> Iterator[list[Completion]]:
        """All completions, a few messages of those that have finished since the one before."""
        return _portions(self._sampler.stream(requests), sum(request.n for request in requests))

    def stream_enough(
        self, requests: Sequence[SampleRequest], groups: Sequence[int], enough: int
    ) -> Iterator[list[Completion]]:
        """The same, but when all requests of ``enough`` groups are complete the others end as they are ("abort").

        Which ones that are depends on the requests, the weights and the seed, not on time (unless a server answers).
        """
        return _portions(self._until_enough(requests, groups, enough), sum(request.n for request in requests))

    def _until_enough(
        self, requests: Sequence[SampleRequest], groups: Sequence[int], enough: int
    ) -> Iterator[Completion]:
        group_of = {request.request_id: group for request, group in zip(requests, groups, strict=True)}
        waiting: Counter[int] = Counter()
        for request in requests:
            waiting[group_of[request.request_id]] += request.n
        needed = len(waiting) - enough
        for completion in self._sampler.stream(requests):
            yield completion
            waiting[group_of[completion.request_id]] -= 1
            open_groups = {group for group, count in waiting.items() if count}
            if open_groups and len(open_groups) <= needed:
                ids = [name for name, group in group_of.items() if group in open_groups]
                yield from self._sampler.abort(ids)
                needed = -1

    def load(self, update: WeightUpdate) -> Metrics:
        return self._sampler.load(update)

    def load_segment(self, address: SegmentAddress, *, part: int, parts: int) -> Metrics:
        """Takes the part of the weights that lies in shared memory."""
        from rlinf.cluster.weights.segment import SegmentReader

        if self._segment is None:
            self._segment = SegmentReader()
        return self._sampler.load(replace(self._segment.read(address), part=part, parts=parts))

    def join_broadcast(
        self, address: str, port: int, *, rank: int, size: int, device: str, timeout_s: float
    ) -> str | None:
        """Meets the sender and the other receivers; what went wrong, or None."""
        import torch

        from rlinf.cluster.weights.broadcast import Broadcast, BroadcastError

        try:
            self._group = Broadcast.join(
                address, port, rank=rank, size=size, device=torch.device(device), timeout_s=timeout_s
            )
        except BroadcastError as error:
            return str(error)
        return None

    def receive_weights(self, *, part: int, parts: int) -> Metrics | str:
        """Takes the part of the weights that is being sent; the figures, or what went wrong."""
        from rlinf.cluster.weights.broadcast import BroadcastError

        if self._group is None:
            return "this sampler is in no group"
        try:
            update = self._group.receive()
        except BroadcastError as error:
            self._group = None
            return str(error)
        return self._sampler.load(replace(update, part=part, parts=parts))

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
