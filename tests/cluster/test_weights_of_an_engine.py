"""Weights by vLLM's own transfer: rlinf's two sides against a sender and engines with vLLM's signatures (0.32)."""

from __future__ import annotations

import base64
import pickle
import queue
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import KW_ONLY, asdict, dataclass
from types import ModuleType
from typing import Any, ClassVar

import pytest
import torch
from held_weights import Threads
from torch import Tensor

from rlinf.base.errors import UserError
from rlinf.cluster.errors import ClusterError
from rlinf.cluster.weights.choice import choose
from rlinf.cluster.weights.receiver import WeightFollower
from rlinf.cluster.weights.sender import WeightSender
from rlinf.data.messages import Metrics, WeightForm, WeightUpdate
from rlinf.samplers.vllm_transfer import OrderingClient

PARTS, SAMPLERS, WORKERS = 3, 2, 2
WIRES: dict[int, queue.Queue[Tensor]] = {}
"""What NCCL is to real ones: a queue for each rank of the group."""
MEMORY: dict[str, Tensor] = {}
"""What the GPU's memory is to CUDA IPC."""


@dataclass
class NCCLTrainerInitInfo:
    backend: ClassVar[str] = "nccl"
    master_address: str
    master_port: int
    world_size: int
    rank: int


@dataclass
class NCCLWeightTransferUpdateInfo:
    names: list[str]
    dtype_names: list[str]
    shapes: list[list[int]]


class NCCLTrainerWeightTransferEngine:
    """The order of vLLM's calls: its sender waits for nothing but the client."""

    def __init__(self, info: NCCLTrainerInitInfo, client: Any, source: Any) -> None:
        self.info, self.client, self.source = info, client, source

    @classmethod
    def trainer_init(cls, init_info: NCCLTrainerInitInfo, *, client: Any, source: Any = None) -> Any:
        if init_info.rank == 0:
            WIRES.clear()
            WIRES.update({rank: queue.Queue() for rank in range(1, init_info.world_size)})
            meeting = {name: getattr(init_info, name) for name in ("master_address", "master_port", "world_size")}
            client.init_weight_transfer_engine({**meeting, "rank_offset": 1, "packed": True})
        return cls(init_info, client, source)

    def send_weights(self) -> None:
        described = self.source.metadata()
        if self.info.rank != 0:
            for _ in self.source:
                pass
            return
        names, shapes = [one.name for one in described], [list(one.shape) for one in described]
        dtypes = [str(one.dtype).split(".")[-1] for one in described]
        self.client.start_weight_update()
        with ThreadPoolExecutor(1) as thread:
            taken = thread.submit(
                self.client.update_weights, asdict(NCCLWeightTransferUpdateInfo(names, dtypes, shapes))
            )
            for _, tensor in self.source:
                for wire in WIRES.values():
                    wire.put(tensor)
            taken.result()
        self.client.finish_weight_update()


@dataclass
class IPCTrainerInitInfo:
    backend: ClassVar[str] = "ipc"
    packed: bool = False
    packed_buffer_size_bytes: int = 0
    _: KW_ONLY
    rank: int


class IPCTrainerWeightTransferEngine:
    """vLLM's sender by CUDA IPC, packed: an update a chunk, whose handle is a tuple of Python objects."""

    def __init__(self, client: Any, source: Any) -> None:
        self.client, self.source = client, source

    @classmethod
    def trainer_init(cls, init_info: IPCTrainerInitInfo, *, client: Any, source: Any = None) -> Any:
        assert init_info == IPCTrainerInitInfo(packed=True, packed_buffer_size_bytes=256 << 20, rank=0)
        client.init_weight_transfer_engine({"packed": True})
        return cls(client, source)

    def send_weights(self) -> None:
        self.client.start_weight_update()
        for name, tensor in self.source:
            described: dict[str, Any] = {"names": [name], "dtype_names": [str(tensor.dtype).split(".")[-1]]}
            handles = {"GPU-1": (torch.UntypedStorage, b"handle", tensor.dtype, name)}
            MEMORY[name] = tensor
            self.client.update_weights(
                {**described, "shapes": [list(tensor.shape)], "ipc_handles": handles, "tensor_sizes": [tensor.nbytes]}
            )
        self.client.finish_weight_update()


@pytest.fixture(autouse=True)
def vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    MEMORY.clear()
    package = "vllm.distributed.weight_transfer"
    for name in ("vllm", "vllm.distributed", package, f"{package}.nccl_engine", f"{package}.ipc_engine"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    for kind in (NCCLTrainerInitInfo, NCCLTrainerWeightTransferEngine):
        monkeypatch.setattr(sys.modules[f"{package}.nccl_engine"], kind.__name__, kind, raising=False)
    for one in (IPCTrainerInitInfo, IPCTrainerWeightTransferEngine):
        monkeypatch.setattr(sys.modules[f"{package}.ipc_engine"], one.__name__, one, raising=False)


class Learner(WeightSender):
    def __init__(self, rank: int, sources: tuple[int, ...] = (0,) * PARTS) -> None:
        super().__init__(rank)
        self.sources, self.gathered = sources, 0

    def weight_sources(self, *, form: WeightForm = "merged") -> list[int]:
        return list(self.sources)

    def weights(self, *, version: int, part: int = 0, form: WeightForm = "merged") -> WeightUpdate:
        self.gathered += 1
        mine = self._rank == self.sources[part]
        tensors = {f"w{part}": torch.full((2, part + 1), float(version), dtype=torch.bfloat16)} if mine else {}
        return WeightUpdate(version, tensors, part, PARTS)


class Sampler(WeightFollower):
    """An engine of two worker processes, by vLLM's rules about the order of calls."""

    def __init__(self) -> None:
        self.ranks: list[int] = []
        self.held: list[dict[str, Tensor]] = [{} for _ in range(WORKERS)]
        self.version, self.updating, self.fail = -1, False, False

    def load(self, update: WeightUpdate) -> Metrics:
        raise AssertionError("weights came by another way")

    def follow(self, order: str, options: Any, *, version: int) -> None:
        getattr(self, order)(**options)
        if order == "finish_weight_update":
            self.version = version

    def init_weight_transfer_engine(self, init_info: dict[str, Any]) -> None:
        assert set(init_info) == {"master_address", "master_port", "rank_offset", "world_size", "packed"}
        assert init_info["world_size"] == 1 + SAMPLERS * WORKERS
        self.ranks = [init_info["rank_offset"] + worker for worker in range(WORKERS)]

    def start_weight_update(self) -> None:
        assert not self.updating
        self.updating = True

    def update_weights(self, update_info: dict[str, Any]) -> None:
        assert self.updating
        if self.fail:
            raise ValueError("a layer does not fit")
        for held, rank in zip(self.held, self.ranks, strict=True):
            for name, dtype, shape in zip(*update_info.values(), strict=True):
                tensor = WIRES[rank].get(timeout=10.0)
                assert (str(tensor.dtype), list(tensor.shape)) == (f"torch.{dtype}", shape)
                held[name] = tensor.clone()

    def finish_weight_update(self) -> None:
        assert self.updating
        self.updating = False


class SharedSampler(Sampler):
    """An engine of one process on the learner's own GPU."""

    def init_weight_transfer_engine(self, init_info: dict[str, Any]) -> None:
        assert init_info == {"packed": True}

    def update_weights(self, update_info: dict[str, Any]) -> None:
        assert self.updating
        assert update_info["ipc_handles"] is None
        handles = pickle.loads(base64.b64decode(update_info["ipc_handles_pickled"]))
        (name,), (shape,), (size,) = update_info["names"], update_info["shapes"], update_info["tensor_sizes"]
        assert handles == {"GPU-1": (torch.UntypedStorage, b"handle", torch.bfloat16, name)}
        assert (list(MEMORY[name].shape), MEMORY[name].nbytes) == (shape, size)
        self.held[0][name] = MEMORY[name].clone()


class Nodes(Threads):
    def nodes(self) -> list[str]:
        return ["127.0.0.1"] * self.size


def connected(learners: list[Learner], samplers: list[Sampler]) -> Any:
    return choose("vllm", Nodes(learners), Nodes(samplers), cuda=False, keep=False, workers=WORKERS, transfer="nccl")  # type: ignore[arg-type]


def never(rank: int, error: Exception) -> None:
    raise AssertionError(f"receiver {rank} was restarted: {error}")


def test_every_process_of_every_engine_gets_every_weight() -> None:
    learners, samplers = [Learner(0), Learner(1)], [Sampler() for _ in range(SAMPLERS)]
    transport = connected(learners, samplers)
    for version in (1, 2):
        figures = transport.send(version, never)
        # bfloat16 [2, 1], [2, 2] and [2, 3]
        assert figures["weight_update_bytes"] == 2 * 2 * (1 + 2 + 3)
        for sampler in samplers:
            assert (sampler.version, sampler.updating) == (version, False)
            for held in sampler.held:
                assert {name: float(tensor.float().mean()) for name, tensor in held.items()} == {
                    f"w{part}": float(version) for part in range(PARTS)
                }
    assert [sampler.ranks for sampler in samplers] == [[1, 2], [3, 4]]
    # Both ranks gather the same number of times: once for the shapes, and once a sending.
    assert {learner.gathered for learner in learners} == {3 * PARTS}


def test_a_sampler_on_the_learner_s_gpu_gets_handles_of_its_memory() -> None:
    sampler = SharedSampler()
    learner, receivers = Nodes([Learner(0)]), Nodes([sampler])
    transport = choose("vllm", learner, receivers, cuda=False, keep=False, transfer="ipc")  # type: ignore[arg-type]
    for version in (1, 2):
        figures = transport.send(version, never)
        assert figures["weight_update_bytes"] == 2 * 2 * (1 + 2 + 3)
        assert (sampler.version, sampler.updating) == (version, False)
        assert {name: float(tensor.float().mean()) for name, tensor in sampler.held[0].items()} == {
            f"w{part}": float(version) for part in range(PARTS)
        }


def test_a_sampler_that_fails_ends_the_sending_with_its_own_words() -> None:
    samplers = [Sampler() for _ in range(SAMPLERS)]
    samplers[1].fail = True
    with pytest.raises(ClusterError, match="sampler 1: ValueError: a layer does not fit"):
        connected([Learner(0)], samplers).send(1, never)


def test_a_learner_with_several_sources_is_refused() -> None:
    with pytest.raises(UserError, match="it has one sender, and 2 ranks of the learner give weights"):
        connected([Learner(0, (0, 1, 0)), Learner(1, (0, 1, 0))], [Sampler()])


def test_a_worker_without_an_engine_reports_it() -> None:
    class Other(Sampler):
        def follow(self, order: str, options: Any, *, version: int) -> None:
            WeightFollower.follow(self, order, options, version=version)

    with pytest.raises(ClusterError, match="Other has no engine that vLLM's weight transfer could reach"):
        connected([Learner(0)], [Other(), Other()]).send(1, never)


def test_the_client_has_the_methods_of_vllm_s_protocol() -> None:
    names = ("init_weight_transfer_engine", "start_weight_update", "update_weights", "finish_weight_update")
    assert all(callable(getattr(OrderingClient, name)) for name in names)
