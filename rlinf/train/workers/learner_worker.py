"""A rank of the learner as the driver calls it, the sender of every weight transport."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from rlinf.interfaces import Learner
from rlinf.types import Batch, Metrics, PolicyOutput, WeightUpdate

if TYPE_CHECKING:
    from rlinf.cluster.weights.broadcast import Broadcast
    from rlinf.cluster.weights.segment import SegmentAddress, SegmentWriter


class LearnerWorker:
    """A rank of any learner, with ways to send its weights.

    Every method is called on all ranks: a sharded model is gathered by all of them, and rank 0 sends, part after part.
    A call wakes a learner that sleeps; reading its weights leaves the rest of it asleep.
    """

    def __init__(self, learner: Learner, *, rank: int, bucket_bytes: int | None = None) -> None:
        """``bucket_bytes``: the size of a part; None is all weights at once."""
        self._asleep = False
        self._learner, self._rank = learner, rank
        self._bucket_bytes = bucket_bytes
        self._segment: SegmentWriter | None = None
        self._store: Any = None
        self._sent: list[WeightUpdate] = []
        self._group: Broadcast | None = None

    def _awake(self) -> Learner:
        if self._asleep:
            self._learner.wake()
            self._asleep = False
        return self._learner

    def start(self, stage: str) -> None:
        """Begins a stage, "sft" or "train"."""
        self._awake().start(stage)

    def evaluate(self, batch: Batch, *, reference: bool = False) -> tuple[Tensor, PolicyOutput]:
        """(rows [B'], log-probabilities and values [B', T]) of this rank's share."""
        return self._awake().evaluate(batch, reference=reference)

    def update(self, batch: Batch, *, step: int) -> Metrics:
        """All optimiser steps of training iteration ``step``."""
        return self._awake().update(batch, step=step)

    def refresh_reference(self) -> None:
        """Makes the current policy the reference policy."""
        self._awake().refresh_reference()

    def save(self, folder: Path) -> None:
        """Writes what :meth:`load` continues from."""
        self._awake().save(folder)

    def load(self, folder: Path) -> None:
        """Continues where :meth:`save` stopped."""
        self._awake().load(folder)

    def export(self, folder: Path) -> None:
        """Writes a folder that the policy's own library loads."""
        self._awake().export(folder)

    def sleep(self, *, keep_weights: bool) -> Metrics:
        """Moves to the host what ``learner.offload`` names."""
        self._asleep = True
        return self._learner.sleep(keep_weights=keep_weights)

    def weight_parts(self) -> int:
        """In how many parts the weights travel."""
        return 1 if self._bucket_bytes is None else self._learner.weight_parts(self._bucket_bytes)

    def weights(self, *, version: int, part: int = 0) -> WeightUpdate:
        """One part of the weights."""
        if self._asleep:
            self._learner.wake(weights_only=True)
        return self._learner.weights(version=version, part=part, bucket_bytes=self._bucket_bytes)

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
