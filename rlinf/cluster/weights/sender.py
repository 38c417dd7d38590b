"""The learner's side of every weight transport, in the learner's process."""

from __future__ import annotations

from abc import ABC, abstractmethod
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import torch

from rlinf.cluster.weights.broadcast import Broadcast, BroadcastError
from rlinf.cluster.weights.segment import SegmentWriter, address_key
from rlinf.types import WeightForm, WeightUpdate


class WeightSender(ABC):
    """Sends :meth:`weights`, part after part in one call: the next one is gathered while the last one travels.

    Every method is called on all ranks, since all of them gather a sharded model; rank 0 sends.
    """

    _addresses: Any = None
    _store: Any = None
    _group: Broadcast | None = None
    _sent: tuple[WeightUpdate, ...] = ()

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._segments: list[SegmentWriter] = []
        self._changing_segments: list[SegmentWriter] = []

    def has_adapters(self) -> bool:
        """Whether the weights have low-rank adapters, which can be given apart from their layers."""
        return False

    @abstractmethod
    def weight_parts(self, *, form: WeightForm = "merged") -> int:
        """The number of parts that the weights travel in."""

    @abstractmethod
    def weights(self, *, version: int, part: int = 0, form: WeightForm = "merged") -> WeightUpdate:
        """One part of the weights. With adapters "apart", the last parts are those of the form "changing"."""

    def host_addresses(self, *, timeout_s: float) -> int | None:
        """Opens the place where readers of shared memory learn what lies where; its port."""
        if self._rank != 0:
            return None
        self._addresses = Broadcast.host(timeout_s=timeout_s)
        return int(self._addresses.port)

    def write_weights(self, *, version: int, sending: int, replaced: int, form: WeightForm = "merged") -> None:
        """Writes the weights into shared memory, each part to a place of its own, where they stay until the next time.

        Readers learn of a part when it is there. ``sending`` counts these calls; nobody reads what call ``replaced``
        wrote any more. What was written in another form stays when it is called for what is "changing".
        """
        segments = self._changing_segments if form == "changing" else self._segments
        for part in range(self.weight_parts(form=form)):
            update = self.weights(version=version, part=part, form=form)
            if self._rank != 0:
                continue
            if part == len(segments):
                segments.append(SegmentWriter())
            self._addresses.delete_key(address_key(replaced, part))
            self._addresses.set(address_key(sending, part), segments[part].write(update).message())

    def host_broadcast(self, *, timeout_s: float) -> int | None:
        """Opens the place where receivers meet; its port."""
        if self._rank != 0:
            return None
        self._group, self._store = None, Broadcast.host(timeout_s=timeout_s)
        return int(self._store.port)

    def open_broadcast(self, *, size: int, device: str, timeout_s: float) -> str | None:
        """Meets the receivers; what went wrong, or None."""
        if self._rank == 0:
            try:
                self._group = Broadcast(
                    self._store, rank=0, size=size, device=torch.device(device), timeout_s=timeout_s
                )
            except BroadcastError as error:
                return str(error)
        return None

    def broadcast_weights(self, *, version: int, keep: bool, form: WeightForm = "merged") -> str | None:
        """Sends the weights; what went wrong, or None (an exception would end all ranks of a learner).

        ``keep`` holds a copy for :meth:`sent_weights`: the learner's own may have moved on by then.
        """
        problem: str | None = None
        with ThreadPoolExecutor(1, "send-weights") as thread:
            under_way: Future[str | None] | None = None
            for part in range(self.weight_parts(form=form)):
                update = self._taken(version, part, keep, form)
                problem = problem or (under_way.result() if under_way is not None else None)
                under_way = thread.submit(self._send, update)
            return problem or (under_way.result() if under_way is not None else None)

    def _send(self, update: WeightUpdate) -> str | None:
        if self._group is not None:
            try:
                self._group.send(update)
            except BroadcastError as error:
                self._group = None
                return str(error)
        return None

    def held_weights(self, *, version: int, part: int, form: WeightForm = "merged") -> tuple[None, WeightUpdate]:
        """:meth:`weights` as the second half of a pair, which receivers fetch past the driver."""
        return None, self.weights(version=version, part=part, form=form)

    def sent_weights(self, *, version: int, part: int, form: WeightForm = "merged") -> tuple[None, WeightUpdate]:
        """The same of what was sent as ``version``: a kept copy, or what the learner has now."""
        update = self.weights(version=version, part=part, form=form)
        kept = part - (update.parts - len(self._sent))
        if kept >= 0 and self._sent[kept].version == version:
            update = replace(self._sent[kept], part=part, parts=update.parts, partial=False)
        return None, update

    def _taken(self, version: int, part: int, keep: bool, form: WeightForm) -> WeightUpdate:
        update = self.weights(version=version, part=part, form=form)
        if keep:
            # The last ones of all parts are those that change.
            copied = {name: tensor.clone() for name, tensor in update.tensors.items()}
            self._sent = (*self._sent[:part], replace(update, tensors=copied))
        return update
