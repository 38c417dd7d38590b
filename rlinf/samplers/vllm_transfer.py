"""The learner's side of vLLM's own weight transfer: its trainer engine, led past the driver to every sampler.

Tensors travel by NCCL to samplers on GPUs of their own, and by CUDA IPC to those that share the learner's GPU.

vLLM's engine has one sender and a client, by which it gives orders (begin, take these weights, finish). Here an order
is a JSON text in a store that samplers read, and each of them confirms it there. So every wait has a deadline.
"""

from __future__ import annotations

import base64
import json
import pickle
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from rlinf.data.messages import WeightUpdate
from rlinf.schema.rollout import TransferBackend

_ABANDON = "abandon"
_BUFFER_BYTES = 256 << 20
"""The least size of the buffer that CUDA IPC fills again and again; vLLM refuses tensors that exceed it."""


class Store(Protocol):
    """The part of torch's TCPStore that orders need."""

    def set(self, key: str, value: str) -> None: ...

    def get(self, key: str) -> bytes: ...


class TransferError(RuntimeError):
    """A sampler did not carry out an order; the text is its own."""


class OrderingClient:
    """The client of vLLM's trainer engine: each call returns when all samplers have carried it out."""

    def __init__(self, store: Store, samplers: int) -> None:
        self._store, self._samplers, self._number = store, samplers, 0

    def init_weight_transfer_engine(self, init_info: dict[str, Any]) -> None:
        """Let the samplers meet the sender."""
        self._order("init_weight_transfer_engine", init_info=init_info)

    def start_weight_update(self) -> None:
        """Let the samplers prepare their layers."""
        self._order("start_weight_update")

    def update_weights(self, update_info: dict[str, Any]) -> None:
        """Let the samplers receive the tensors that ``update_info`` names.

        Handles of CUDA IPC are Python objects. They are pickled, as vLLM's own HTTP client does it.
        """
        if (handles := update_info.get("ipc_handles")) is not None:
            pickled = base64.b64encode(pickle.dumps(handles)).decode()
            update_info = {**update_info, "ipc_handles": None, "ipc_handles_pickled": pickled}
        self._order("update_weights", update_info=update_info)

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        """Let the samplers compute with what they have received; they have its version."""
        self._order("finish_weight_update")

    def abandon(self, reason: str) -> None:
        """Let samplers that wait for the next order give up; the group is of no use any more."""
        self._store.set(f"order/{self._number}", json.dumps([_ABANDON, {"reason": reason}]))

    def _order(self, name: str, **options: Any) -> None:
        number, self._number = self._number, self._number + 1
        self._store.set(f"order/{number}", json.dumps([name, options]))
        for index in range(self._samplers):
            if problem := self._store.get(f"done/{number}/{index}").decode():
                raise TransferError(f"sampler {index}: {problem}")


def carry_out(store: Store, number: int, index: int, action: Callable[[str, dict[str, Any]], None]) -> tuple[str, str]:
    """Wait for an order, carry it out by ``action`` and confirm it; return its name and what went wrong, if anything.

    ``index``: that of this sampler. Raises the store's error if no order comes in its time.
    """
    name, options = json.loads(store.get(f"order/{number}"))
    if name == _ABANDON:
        return name, f"the sender gave up: {options['reason']}"
    problem = ""
    try:
        action(name, options)
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"
    store.set(f"done/{number}/{index}", problem)
    return name, problem


@dataclass(frozen=True)
class ParamMeta:
    """Name, type and shape of a tensor that will be sent, as vLLM's sender reads them."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]


class UpdateSource:
    """The weights of a learner as vLLM's sender iterates over them; every rank iterates, as each gathers its part."""

    def __init__(self, parts: Callable[[], Iterator[WeightUpdate]], device: torch.device) -> None:
        self._parts, self._device = parts, device
        self._metadata: list[ParamMeta] | None = None

    def metadata(self) -> list[ParamMeta]:
        """Describe what iteration yields. The first call gathers the weights once; they keep their shapes."""
        if self._metadata is None:
            self._metadata = [ParamMeta(name, tensor.dtype, tuple(tensor.shape)) for name, tensor in self]
        return self._metadata

    def __iter__(self) -> Iterator[tuple[str, Tensor]]:
        for update in self._parts():
            for name, tensor in update.tensors.items():
                yield name, tensor.to(self._device)


def trainer_engine(
    meeting: tuple[str, int],
    *,
    backend: TransferBackend,
    rank: int,
    size: int,
    client: OrderingClient,
    source: UpdateSource,
) -> Any:
    """Build vLLM's engine on a learner rank and, on rank 0, meet the samplers' workers (``size`` processes in all).

    Its ``send_weights()`` sends what ``source`` yields, on every rank. ``meeting``: address and free port of rank 0,
    which NCCL needs. CUDA IPC sends through one buffer, as large as the largest tensor, so the GPU never holds a second
    whole copy of the weights.
    """
    if backend == "ipc":
        from vllm.distributed.weight_transfer.ipc_engine import IPCTrainerInitInfo, IPCTrainerWeightTransferEngine

        largest = max(one.dtype.itemsize * torch.Size(one.shape).numel() for one in source.metadata())
        buffer = max(largest, _BUFFER_BYTES)
        shared = IPCTrainerInitInfo(rank=rank, packed=True, packed_buffer_size_bytes=buffer)
        return IPCTrainerWeightTransferEngine.trainer_init(shared, client=client, source=source)
    from vllm.distributed.weight_transfer.nccl_engine import NCCLTrainerInitInfo, NCCLTrainerWeightTransferEngine

    info = NCCLTrainerInitInfo(master_address=meeting[0], master_port=meeting[1], world_size=size, rank=rank)
    return NCCLTrainerWeightTransferEngine.trainer_init(info, client=client, source=source)


def update_bytes(update_info: Mapping[str, Any]) -> int:
    """Return the size in bytes of the tensors that an order ``update_weights`` names."""
    return sum(
        torch.Size(shape).numel() * getattr(torch, dtype).itemsize
        for shape, dtype in zip(update_info["shapes"], update_info["dtype_names"], strict=True)
    )
