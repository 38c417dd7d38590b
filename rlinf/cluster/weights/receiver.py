"""The acting side of every weight transport, in the process of a sampler, a policy server or an env worker."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

from rlinf.cluster.weights.broadcast import Broadcast, BroadcastError
from rlinf.cluster.weights.segment import SegmentAddress, SegmentReader, address_key
from rlinf.data.messages import Metrics, WeightUpdate
from rlinf.models.weight_digest import DigestRequest, Digests
from rlinf.samplers.vllm_transfer import carry_out, update_bytes


class WeightFollower(ABC):
    """A worker that takes weights by every transport; what it does with them is :meth:`load`."""

    _addresses: tuple[int, Any] | None = None
    _readers: dict[int, SegmentReader] | None = None
    _groups: dict[int, Broadcast] | None = None
    """The group of each source, by its rank."""
    _arriving_at_once = 1
    _orders: tuple[tuple[str, int], Any] | None = None
    _next_order = 0

    @abstractmethod
    def load(self, update: WeightUpdate) -> Metrics:
        """Load weights, copying what it keeps of them; ``weight_update_s`` and ``weight_update_bytes``."""

    def held_digests(self, requests: Mapping[str, DigestRequest]) -> Digests | str:
        """Return the digests of the weights that the next answer is computed with, or why they cannot be read."""
        return f"{type(self).__name__} has no method held_digests"

    def takes_adapters(self) -> bool:
        """Whether :meth:`load` puts adapters and the layers that they belong to together itself."""
        return False

    def load_segments(self, port: int, sending: int, *, timeout_s: float) -> Metrics:
        """Load the weights that are in shared memory, each part as soon as it is there.

        ``port``: where senders publish the address of each part. A part that does not come in ``timeout_s`` is a
        DistStoreError.
        """
        if self._addresses is None or self._addresses[0] != port:
            self._addresses = port, Broadcast.meet("127.0.0.1", port, timeout_s=timeout_s)
        store, part = self._addresses[1], 0
        readers = self._readers = self._readers or {}
        figures: list[Metrics] = []
        while True:
            address = SegmentAddress.of_message(store.get(address_key(sending, part)))
            update = readers.setdefault(part, SegmentReader()).read(address)
            figures.append(self.load(update))
            if update.is_last:
                return added(figures)
            part += 1

    def join_broadcast(
        self, meetings: Mapping[int, tuple[str, int]], *, rank: int, size: int, device: str, timeout_s: float
    ) -> str | None:
        """Meets each source (its rank: its address and port) and the other receivers; what went wrong, or None."""
        options: dict[str, Any] = {"rank": rank, "size": size, "device": torch.device(device), "timeout_s": timeout_s}
        # Not all at once: groups of NCCL have to be called in one order everywhere.
        self._arriving_at_once = 1 if device == "cuda" else len(meetings)
        try:
            self._groups = {
                source: Broadcast.join(address, port, **options) for source, (address, port) in meetings.items()
            }
        except BroadcastError as error:
            return str(error)
        return None

    def receive_weights(self, sources: Sequence[int]) -> Metrics | str:
        """Load the weights being sent, one part while the next ones arrive; return the figures or the error text.

        ``sources``: the rank that gives each part. Parts are taken in this order; one of each source is on its way.
        """
        groups = self._groups
        if groups is None:
            return "this worker is in no group"
        figures: list[Metrics] = []
        try:
            with ThreadPoolExecutor(self._arriving_at_once, "receive-weights") as threads:
                arriving = {source: threads.submit(groups[source].receive) for source in dict.fromkeys(sources)}
                for part, source in enumerate(sources):
                    update = arriving[source].result()
                    if source in sources[part + 1 :]:
                        arriving[source] = threads.submit(groups[source].receive)
                    figures.append(self.load(update))
        except BroadcastError as error:
            self._groups = None
            return str(error)
        return added(figures)

    def follow_engine(
        self, orders: tuple[str, int], *, receiver: int, workers: int, last: str, version: int, timeout_s: float
    ) -> Metrics | str:
        """Carry out what the learner's engine orders at the address ``orders``, to the order named ``last``.

        ``receiver``: this receiver's number; each has ``workers`` processes. Return the figures, or the error text.
        """
        started, size = time.perf_counter(), 0

        def act(name: str, options: dict[str, Any]) -> None:
            nonlocal size
            # NCCL numbers all processes of all engines; CUDA IPC needs no ranks.
            if "rank_offset" in options.get("init_info", {}):
                options["init_info"]["rank_offset"] += receiver * workers
            if "update_info" in options:
                size += update_bytes(options["update_info"])
            self.follow(name, options, version=version)

        try:
            if self._orders is None or self._orders[0] != orders:
                self._orders = orders, Broadcast.meet(*orders, timeout_s=timeout_s)
                self._next_order = 0
            store = self._orders[1]
            while True:
                name, problem = carry_out(store, self._next_order, receiver, act)
                self._next_order += 1
                if problem:
                    self._orders = None
                if problem or name == last:
                    seconds = time.perf_counter() - started
                    return problem or {"weight_update_s": seconds, "weight_update_bytes": float(size)}
        except (RuntimeError, torch.distributed.DistError) as error:
            self._orders = None
            return f"no order of the learner's engine came: {error}"

    def follow(self, order: str, options: Mapping[str, Any], *, version: int) -> None:
        """Carry out an order of vLLM's weight transfer, for weights of ``version``."""
        raise TypeError(f"{type(self).__name__} has no engine that vLLM's weight transfer could reach")


def added(parts: Sequence[Metrics]) -> Metrics:
    """Add seconds and bytes of several parts; a part that no worker took has none."""
    names = dict.fromkeys(name for part in parts for name in part)
    return {name: sum(part.get(name, 0.0) for part in parts) for name in names}
