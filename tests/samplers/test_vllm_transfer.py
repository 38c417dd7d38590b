"""Orders of a learner against vLLM itself: its classes have the signatures, a real engine's worker takes the weights.

The engine of the test stands where NCCL's stands, registered by vLLM's own factory: NCCL needs GPUs on both sides.
"""

from __future__ import annotations

import inspect
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tiny_models import EOS, tiny_qwen2
from torch import Tensor

from rlinf.data.messages import SampleRequest, SamplingParams
from rlinf.samplers.vllm import VllmSampler
from rlinf.samplers.vllm_transfer import OrderingClient, ParamMeta, UpdateSource, carry_out
from rlinf.schema.rollout import TransferBackend, VllmConfig

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(600)]
pytest.importorskip("vllm.distributed.weight_transfer", reason="needs vLLM 0.32")
SENT: dict[str, Tensor] = {}


def parameters(function: Any) -> set[str]:
    return set(inspect.signature(function).parameters) - {"self", "cls"}


class Orders:
    """A store whose one sampler carries out each order at once."""

    def __init__(self, sampler: VllmSampler) -> None:
        self.sampler, self.texts, self.number = sampler, dict[str, str](), 0

    def set(self, key: str, value: str) -> None:
        self.texts[key] = value
        if key.startswith("order/"):
            number, self.number = self.number, self.number + 1
            carry_out(self, number, 0, lambda name, options: self.sampler.follow_transfer(name, options, version=5))

    def get(self, key: str) -> bytes:
        return self.texts[key].encode()


REQUEST = SampleRequest(0, (5, 6, 7), 1, SamplingParams(max_new_tokens=6, temperature=0.0), key=(1,))
CONFIG = VllmConfig(kv_cache_memory_mb=16, dtype="float32", max_num_seqs=4)


def engine(folder: Path, transfer: TransferBackend) -> tuple[torch.nn.Module, VllmSampler]:
    model = tiny_qwen2(tied=False, head_dim=32)
    model.save_pretrained(folder)
    return model, VllmSampler(folder, CONFIG, eos_token_ids=[EOS], seed=3, max_model_len=64, transfer=transfer)


def moved(model: torch.nn.Module) -> None:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.3)


def require_same_as_a_fresh_engine(sampler: VllmSampler, model: Any, before: Any, folder: Path) -> None:
    after = sampler.sample([REQUEST])[0]
    model.save_pretrained(folder)
    fresh = VllmSampler(folder, CONFIG, eos_token_ids=[EOS], seed=3, max_model_len=64)
    expected = fresh.sample([REQUEST])[0]
    assert list(after.token_ids.array) == list(expected.token_ids.array)
    assert after.logprobs.array == pytest.approx(expected.logprobs.array, abs=1e-4)
    assert list(before.logprobs.array) != list(after.logprobs.array)


def test_classes_of_the_sender_have_the_signatures() -> None:
    from vllm.distributed.weight_transfer import base
    from vllm.distributed.weight_transfer.nccl_engine import NCCLTrainerInitInfo, NCCLTrainerWeightTransferEngine

    assert parameters(NCCLTrainerInitInfo) >= {"master_address", "master_port", "world_size", "rank"}
    assert parameters(NCCLTrainerWeightTransferEngine.trainer_init) == {"init_info", "client", "source"}
    assert parameters(NCCLTrainerWeightTransferEngine.send_weights) == set()
    assert isinstance(OrderingClient({}, 0), base.VLLMWeightSyncClient)  # type: ignore[arg-type]
    for name in ("init_weight_transfer_engine", "start_weight_update", "update_weights", "finish_weight_update"):
        assert parameters(getattr(OrderingClient, name)) == parameters(getattr(base.VLLMWeightSyncClient, name))
    assert list(ParamMeta.__dataclass_fields__) == list(base.ParamMeta.__dataclass_fields__)
    assert callable(UpdateSource.metadata)


def test_classes_of_cuda_ipc_have_the_signatures() -> None:
    from vllm.distributed.weight_transfer.ipc_engine import IPCTrainerInitInfo, IPCTrainerWeightTransferEngine

    assert parameters(IPCTrainerInitInfo) == {"packed", "packed_buffer_size_bytes", "rank"}
    assert parameters(IPCTrainerWeightTransferEngine.trainer_init) == {"init_info", "client", "source"}
    assert parameters(IPCTrainerWeightTransferEngine.send_weights) == set()


def test_its_worker_reads_the_learner_s_memory_by_handles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM's own receiver of CUDA IPC in a real engine: only the mapping of GPU memory is the test's."""
    mapped: list[tuple[Any, ...]] = []
    buffer = torch.empty(1 << 20, dtype=torch.uint8)

    def mapping(*handle: Any) -> Tensor:
        mapped.append(handle)
        return buffer

    monkeypatch.setattr("torch.multiprocessing.reductions.rebuild_cuda_tensor", mapping)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: SimpleNamespace(uuid="GPU-1"))
    monkeypatch.setattr(torch.accelerator, "synchronize", lambda: None)
    model, sampler = engine(tmp_path, "ipc")
    before = sampler.sample([REQUEST])[0]
    moved(model)
    store = Orders(sampler)
    client = OrderingClient(store, 1)
    client.init_weight_transfer_engine({"packed": True})
    client.start_weight_update()
    tensors = {name: tensor.detach().contiguous() for name, tensor in model.named_parameters()}
    for names in (list(tensors)[:3], list(tensors)[3:]):  # two fillings of one buffer
        sizes = [tensors[name].nbytes for name in names]
        buffer[: sum(sizes)] = torch.cat([tensors[name].view(-1).view(torch.uint8) for name in names])
        shapes = [list(tensors[name].shape) for name in names]
        handle = {"GPU-1": (Tensor, (1 << 20,), (1,), 0, torch.UntypedStorage, torch.uint8, 0, b"handle")}
        update = {"names": names, "dtype_names": ["float32"] * len(names), "shapes": shapes, "tensor_sizes": sizes}
        client.update_weights({**update, "ipc_handles": handle})
    buffer.zero_()
    client.finish_weight_update()
    assert len(mapped) == 1
    assert mapped[0][7] == b"handle"
    require_same_as_a_fresh_engine(sampler, model, before, tmp_path / "fresh")


def test_its_worker_takes_the_weights_that_orders_bring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory
    from vllm.distributed.weight_transfer.nccl_engine import NCCLWeightTransferEngine

    met: list[dict[str, Any]] = []

    class Delivered(NCCLWeightTransferEngine):
        """NCCL's engine without NCCL: its meeting is noted, and its tensors come from the test."""

        def init_transfer_engine(self, init_info: Any) -> None:
            met.append({"rank_offset": init_info.rank_offset, "world_size": init_info.world_size})

        def update_weights(self, update_info: dict[str, Any]) -> None:
            info = self.parse_update_info(update_info)
            self.model.load_weights([(name, SENT[name]) for name in info.names])

    monkeypatch.setattr(WeightTransferEngineFactory, "create_engine", lambda *given: Delivered(*given))
    model, sampler = engine(tmp_path, "nccl")
    before = sampler.sample([REQUEST])[0]
    moved(model)
    SENT.update({name: tensor.detach().clone() for name, tensor in model.named_parameters()})
    meeting = {"master_address": "127.0.0.1", "master_port": 1, "rank_offset": 1, "world_size": 2, "packed": True}
    described = {
        "names": list(SENT),
        "dtype_names": [str(tensor.dtype).split(".")[-1] for tensor in SENT.values()],
        "shapes": [list(tensor.shape) for tensor in SENT.values()],
    }
    for version in (7, 8):  # a second meeting and a second update work too
        sampler.follow_transfer("init_weight_transfer_engine", {"init_info": meeting}, version=0)
        sampler.follow_transfer("start_weight_update", {}, version=version)
        sampler.follow_transfer("update_weights", {"update_info": described}, version=version)
        sampler.follow_transfer("finish_weight_update", {}, version=version)
        after = sampler.sample([REQUEST])[0]
        assert {int(one) for one in after.policy_version.array} == {version}
    assert met == [{"rank_offset": 1, "world_size": 2}] * 2
    require_same_as_a_fresh_engine(sampler, model, before, tmp_path / "fresh")
