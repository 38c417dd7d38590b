"""The acting side of every weight transport, in the process of a sampler, a policy server or an env worker."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from rlinf.cluster.weights.broadcast import Broadcast, BroadcastError
from rlinf.cluster.weights.segment import SegmentAddress, SegmentReader, address_key
from rlinf.types import Metrics, WeightUpdate


class WeightReceiver(ABC):
    """A worker that takes weights by every transport; what it does with them is :meth:`load`."""

    _addresses: tuple[int, Any] | None = None
    _readers: dict[int, SegmentReader] | None = None
    _group: Broadcast | None = None

    @abstractmethod
    def load(self, update: WeightUpdate) -> Metrics:
        """Takes weights in place, and copies what it keeps of them; ``weight_update_s`` and ``weight_update_bytes``."""

    def takes_adapters(self) -> bool:
        """Whether :meth:`load` puts adapters and the layers that they belong to together itself."""
        return False

    def load_segments(self, port: int, sending: int, *, timeout_s: float) -> Metrics:
        """Takes the weights that lie in shared memory, each part as soon as it is there.

        ``port``: where the sender says what lies where. A part that does not come in ``timeout_s`` is a DistStoreError.
        """
        if self._addresses is None or self._addresses[0] != port:
            late = timedelta(seconds=timeout_s)
            self._addresses = port, dist.TCPStore("127.0.0.1", port, is_master=False, timeout=late)
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
        self, address: str, port: int, *, rank: int, size: int, device: str, timeout_s: float
    ) -> str | None:
        """Meets the sender and the other receivers; what went wrong, or None."""
        try:
            self._group = Broadcast.join(
                address, port, rank=rank, size=size, device=torch.device(device), timeout_s=timeout_s
            )
        except BroadcastError as error:
            return str(error)
        return None

    def receive_weights(self) -> Metrics | str:
        """Takes the weights that are being sent, one part while the next arrives; the figures, or what went wrong."""
        group = self._group
        if group is None:
            return "this worker is in no group"
        figures: list[Metrics] = []
        try:
            with ThreadPoolExecutor(1, "receive-weights") as thread:
                arriving = thread.submit(group.receive)
                while True:
                    update = arriving.result()
                    if not update.is_last:
                        arriving = thread.submit(group.receive)
                    figures.append(self.load(update))
                    if update.is_last:
                        return added(figures)
        except BroadcastError as error:
            self._group = None
            return str(error)


def added(parts: Sequence[Metrics]) -> Metrics:
    """Seconds and bytes of several parts."""
    return {name: sum(part[name] for part in parts) for name in parts[0]}
