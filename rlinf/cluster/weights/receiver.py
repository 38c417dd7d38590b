"""The acting side of every weight transport, in the process of a sampler, a policy server or an env worker."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch

from rlinf.cluster.weights.broadcast import Broadcast, BroadcastError
from rlinf.cluster.weights.segment import SegmentAddress, SegmentReader
from rlinf.types import Metrics, WeightUpdate


class WeightReceiver(ABC):
    """A worker that takes weights by every transport; what it does with them is :meth:`load`."""

    _segment: SegmentReader | None = None
    _group: Broadcast | None = None

    @abstractmethod
    def load(self, update: WeightUpdate) -> Metrics:
        """Takes weights in place, and copies what it keeps of them; ``weight_update_s`` and ``weight_update_bytes``."""

    def load_segment(self, address: SegmentAddress) -> Metrics:
        """Takes the part of the weights that lies in shared memory."""
        if self._segment is None:
            self._segment = SegmentReader()
        return self.load(self._segment.read(address))

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
        """Takes the part of the weights that is being sent; the figures, or what went wrong."""
        if self._group is None:
            return "this worker is in no group"
        try:
            update = self._group.receive()
        except BroadcastError as error:
            self._group = None
            return str(error)
        return self.load(update)
