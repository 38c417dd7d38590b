"""Sleep of a learner: weights and optimiser state wait on the host while samplers use the GPU.

Storages are emptied and filled again, and stay the same objects. So parameters, views into flat buffers and the
optimiser's references stay valid. Nothing is computed on the way: what comes back is what left, bit for bit.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterable

import torch
from torch import Tensor

from rlinf.data.messages import Metrics
from rlinf.schema.learner import OffloadConfig

STAY = OffloadConfig()
"""Nothing moves."""


class HostMemory:
    """Holds the contents of emptied storages."""

    def __init__(self) -> None:
        self._away: list[tuple[torch.UntypedStorage, Tensor]] = []

    def take(self, tensors: Iterable[Tensor]) -> int:
        """Empty the storages of ``tensors``, each once, and return how many bytes they had.

        Tensors on memory that torch does not own (a mapped file) stay: nothing would be freed.
        """
        storages = _storages(tensors)
        for storage in storages:
            # Pinned: the copies of all storages overlap, and run at the bus's speed.
            host = torch.empty(storage.nbytes(), dtype=torch.uint8, pin_memory=storage.device.type == "cuda")
            host.copy_(_bytes_of(storage), non_blocking=True)
            self._away.append((storage, host))
        _finish(storages)
        return empty_storages(storages)

    def restore(self) -> int:
        """Fill the storages again; return how many bytes."""
        away, self._away = self._away, []
        for storage, host in away:
            storage.resize_(host.numel())
            _bytes_of(storage).copy_(host, non_blocking=True)
        _finish([storage for storage, _ in away])
        return sum(host.numel() for _, host in away)


def empty_storages(storages: Iterable[torch.UntypedStorage]) -> int:
    """Frees their memory and returns how many bytes; their tensors must not be used until they are filled again."""
    freed = 0
    for storage in storages:
        freed += storage.nbytes()
        storage.resize_(0)
    return freed


def _storages(tensors: Iterable[Tensor]) -> list[torch.UntypedStorage]:
    results: dict[int, torch.UntypedStorage] = {}
    for tensor in tensors:
        storage = tensor.untyped_storage()
        if storage.nbytes() and storage.resizable():
            results.setdefault(storage._cdata, storage)
    return list(results.values())


def _bytes_of(storage: torch.UntypedStorage) -> Tensor:
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)


def _finish(storages: Iterable[torch.UntypedStorage]) -> None:
    if any(storage.device.type == "cuda" for storage in storages):
        torch.cuda.synchronize()


class Offloadable(ABC):
    """The part of a learner that sleeps. Asleep it accepts no call but :meth:`wake`."""

    offload: OffloadConfig = STAY
    _state_away: HostMemory | None = None
    _weights_away: HostMemory | None = None

    @abstractmethod
    def resident_weights(self) -> Iterable[Tensor]:
        """Tensors of policy and reference on the device."""

    @abstractmethod
    def resident_state(self) -> Iterable[Tensor]:
        """Tensors of the optimiser in addition to the weights."""

    @abstractmethod
    def forget_gradients(self) -> None:
        """Frees the memory of gradients, which every optimiser step recreates."""

    def sleep(self, *, keep_weights: bool = False) -> Metrics:
        """Move to the host what ``learner.offload`` names, or of it all but the weights; return seconds and bytes.

        Again is harmless, and moves what is still there.
        """
        began, moved = time.perf_counter(), 0
        if self.offload.optimizer and self._state_away is None:
            self.forget_gradients()
            # In float32 the optimiser's parameters are the weights themselves.
            shared = {tensor.untyped_storage()._cdata for tensor in self.resident_weights()}
            state = [each for each in self.resident_state() if each.untyped_storage()._cdata not in shared]
            self._state_away = HostMemory()
            moved += self._state_away.take(state)
        if self.offload.weights and not keep_weights and self._weights_away is None:
            self._weights_away = HostMemory()
            moved += self._weights_away.take(self.resident_weights())
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        return {"offload_bytes": float(moved), "offload_s": time.perf_counter() - began}

    def wake(self, *, weights_only: bool = False) -> None:
        """Move everything back, or the weights alone. Does nothing when awake."""
        if self._weights_away is not None:
            self._weights_away.restore()
            self._weights_away = None
        if self._state_away is not None and not weights_only:
            self._state_away.restore()
            self._state_away = None
