"""Orders of a learner against vLLM itself: its classes have the signatures, a real engine's worker takes the weights.

The engine of the test stands where NCCL's stands, registered by vLLM's own factory: NCCL needs GPUs on both sides.
"""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_models import EOS, tiny_qwen2
from torch import Tensor

from rlinf.data.messages import SampleRequest, SamplingParams
from rlinf.samplers.vllm import VllmSampler
from rlinf.samplers.vllm_transfer import OrderingClient, ParamMeta, UpdateSource
from rlinf.schema.rollout import VllmConfig

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(600)]
pytest.importorskip("vllm.distributed.weight_transfer", reason="needs vLLM 0.32")
SENT: dict[str, Tensor] = {}


def parameters(function: Any) -> set[str]:
    return set(inspect.signature(function).parameters) - {"self", "cls"}


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
    model = tiny_qwen2(tied=False, head_dim=32)
    model.save_pretrained(tmp_path)
    config = VllmConfig(kv_cache_memory_mb=16, dtype="float32", max_num_seqs=4)
    sampler = VllmSampler(tmp_path, config, eos_token_ids=[EOS], seed=3, max_model_len=64, transfer=True)
    request = SampleRequest(0, (5, 6, 7), 1, SamplingParams(max_new_tokens=6, temperature=0.0), key=(1,))
    before = sampler.sample([request])[0]
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.3)
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
        after = sampler.sample([request])[0]
        assert {int(one) for one in after.policy_version.array} == {version}
    assert met == [{"rank_offset": 1, "world_size": 2}] * 2
    folder = tmp_path / "fresh"
    model.save_pretrained(folder)
    fresh = VllmSampler(folder, config, eos_token_ids=[EOS], seed=3, max_model_len=64)
    expected = fresh.sample([request])[0]
    assert list(after.token_ids.array) == list(expected.token_ids.array)
    assert after.logprobs.array == pytest.approx(expected.logprobs.array, abs=1e-4)
    assert list(before.logprobs.array) != list(after.logprobs.array)
