"""The learner's side of every weight transport, in the learner's process."""

from __future__ import annotations

import socket
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import torch

from rlinf.cluster.weights.broadcast import Broadcast, BroadcastError
from rlinf.cluster.weights.segment import SegmentWriter, address_key
from rlinf.data.messages import WeightForm, WeightUpdate
from rlinf.models.weight_digest import SentWeights, TensorDigest
from rlinf.schema.rollout import TransferBackend


class WeightSender(ABC):
    """Sends :meth:`weights`, part after part in one call: the next one is gathered while the last one travels.

    Every method is called on all ranks, since all of them gather a sharded model; each sends the parts that it gives.
    """

    _addresses: Any = None
    _store: Any = None
    _group: Broadcast | None = None
    _sent: tuple[WeightUpdate, ...] = ()
    _client: Any = None
    _engine: Any = None
    _sending: tuple[int, bool] = (0, False)

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._segments: dict[int, SegmentWriter] = {}
        self._changing_segments: dict[int, SegmentWriter] = {}
        self._sent_weights: SentWeights | None = None

    def has_adapters(self) -> bool:
        """Whether the weights have low-rank adapters, which can be sent separately from their layers."""
        return False

    @abstractmethod
    def weight_sources(self, *, form: WeightForm = "merged") -> list[int]:
        """Return the rank that gives each of the parts that the weights travel in, the same list on every rank."""

    @abstractmethod
    def weights(self, *, version: int, part: int = 0, form: WeightForm = "merged") -> WeightUpdate:
        """One part of the weights, empty on ranks that do not give it.

        With the form ``"separate"``, the last parts are those of the form "changing".
        """

    def keep_digests(self) -> None:
        """Begin to read what is sent, for :meth:`sent_digests`."""
        self._sent_weights = SentWeights()

    def sent_digests(self) -> dict[str, TensorDigest]:
        """Return the digests of what this rank has sent, as receivers must hold it; nothing if it gives none."""
        return {} if self._sent_weights is None else self._sent_weights.digests()

    def _leaving(self, update: WeightUpdate) -> WeightUpdate:
        """Record the digests of an update that is about to be sent, and return it."""
        if self._sent_weights is not None:
            self._sent_weights.add(update)
        return update

    def host_addresses(self, *, timeout_s: float) -> int | None:
        """Open the store where readers of shared memory find the address of each part, on rank 0; return its port."""
        if self._rank != 0:
            return None
        self._addresses = Broadcast.host(timeout_s=timeout_s)
        return int(self._addresses.port)

    def write_weights(
        self,
        *,
        port: int,
        version: int,
        sending: int,
        replaced: int,
        form: WeightForm = "merged",
        timeout_s: float,
    ) -> None:
        """Write the weights into shared memory, each part to a segment of its own, where they stay until the next time.

        Readers can find a part once it is there, at ``port`` (:meth:`host_addresses`). ``sending`` counts these
        calls; no process still reads what call ``replaced`` wrote. What was written in another form stays when it is
        called for what is "changing".
        """
        segments = self._changing_segments if form == "changing" else self._segments
        for part, source in enumerate(self.weight_sources(form=form)):
            update = self.weights(version=version, part=part, form=form)
            if source != self._rank:
                continue
            if self._addresses is None:
                self._addresses = Broadcast.meet("127.0.0.1", port, timeout_s=timeout_s)
            address = segments.setdefault(part, SegmentWriter()).write(self._leaving(update))
            self._addresses.delete_key(address_key(replaced, part))
            self._addresses.set(address_key(sending, part), address.message())

    def host_broadcast(self, *, timeout_s: float) -> int | None:
        """Open the meeting point of receivers and this rank, if it gives weights; return its port."""
        if self._rank not in self.weight_sources():
            return None
        self._group, self._store = None, Broadcast.host(timeout_s=timeout_s)
        return int(self._store.port)

    def open_broadcast(self, *, size: int, device: str, timeout_s: float) -> str | None:
        """Meets the receivers, if this rank gives weights; what went wrong, or None."""
        if self._store is not None:
            try:
                self._group = Broadcast(
                    self._store, rank=0, size=size, device=torch.device(device), timeout_s=timeout_s
                )
            except BroadcastError as error:
                return str(error)
        return None

    def broadcast_weights(self, *, version: int, keep: bool, form: WeightForm = "merged") -> str | None:
        """Send the parts that this rank gives; return the error text, or None (an exception would end all ranks).

        ``keep`` holds a copy for :meth:`sent_weights`: the learner's own may have moved on by then.
        """
        problem: str | None = None
        with ThreadPoolExecutor(1, "send-weights") as thread:
            under_way: Future[str | None] | None = None
            for part, source in enumerate(self.weight_sources(form=form)):
                update = self._taken(version, part, keep, form)
                if source != self._rank:
                    continue
                self._leaving(update)
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

    def host_orders(self, *, timeout_s: float) -> tuple[int, int] | None:
        """Open the store of orders to engines, on rank 0; return its port and a free one for the transfer itself."""
        if self._rank != 0:
            return None
        self._store = Broadcast.host(timeout_s=timeout_s)
        with socket.socket() as free:
            free.bind(("", 0))
            return int(self._store.port), int(free.getsockname()[1])

    def open_engine(
        self, meeting: tuple[str, int], *, backend: TransferBackend, samplers: int, size: int, device: str
    ) -> str | None:
        """Build vLLM's sender on every rank; rank 0 meets the samplers at ``meeting``. Return the error text, or None.

        ``size``: this sender and all processes of the ``samplers``.
        """
        from rlinf.samplers.vllm_transfer import OrderingClient, UpdateSource, trainer_engine

        source = UpdateSource(self._parts_of_engine, torch.device(device))
        try:
            self._client = OrderingClient(self._store, samplers)
            self._engine = trainer_engine(
                meeting, backend=backend, rank=self._rank, size=size, client=self._client, source=source
            )
        except (ImportError, RuntimeError, ValueError) as error:
            self._give_up(error)
            return f"vLLM's weight transfer could not be set up: {error}"
        return None

    def send_by_engine(self, *, version: int, keep: bool) -> str | None:
        """Send all weights by vLLM's engine; return the error text, or None. ``keep``: as in a broadcast."""
        self._sending = version, keep
        try:
            self._engine.send_weights()
        except (RuntimeError, ValueError) as error:
            self._give_up(error)
            return f"vLLM's weight transfer broke off: {error}"
        return None

    def _give_up(self, error: Exception) -> None:
        if self._rank == 0:
            self._client.abandon(str(error))

    def _parts_of_engine(self) -> Iterator[WeightUpdate]:
        version, keep = self._sending
        for part in range(len(self.weight_sources())):
            yield self._leaving(self._taken(version, part, keep, "merged"))

    def own_weights(self, *, version: int, parts: Sequence[int], form: WeightForm = "merged") -> WeightUpdate:
        """Return the one of ``parts`` that this rank gives, an empty one if it gives none; no two are of one rank."""
        updates = [self.weights(version=version, part=part, form=form) for part in parts]
        return next((update for update in updates if update.tensors), updates[0])

    def held_weights(
        self, *, version: int, parts: Sequence[int], form: WeightForm = "merged"
    ) -> tuple[None, WeightUpdate]:
        """:meth:`own_weights` as the second half of a pair, which receivers fetch past the driver."""
        return None, self._leaving(self.own_weights(version=version, parts=parts, form=form))

    def sent_weights(
        self, *, version: int, parts: Sequence[int], form: WeightForm = "merged"
    ) -> tuple[None, WeightUpdate]:
        """Return the same of what was sent as ``version``: a kept copy, or what the learner has now."""
        update = self.own_weights(version=version, parts=parts, form=form)
        kept = update.part - (update.parts - len(self._sent))
        if kept >= 0 and self._sent[kept].version == version:
            update = replace(self._sent[kept], part=update.part, parts=update.parts, partial=False)
        return None, update

    def _taken(self, version: int, part: int, keep: bool, form: WeightForm) -> WeightUpdate:
        update = self.weights(version=version, part=part, form=form)
        if keep:
            # The last ones of all parts are those that change.
            copied = {name: tensor.clone() for name, tensor in update.tensors.items()}
            self._sent = (*self._sent[:part], replace(update, tensors=copied))
        return update
