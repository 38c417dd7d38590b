"""After the first sending only the adapters of a policy travel, whichever way, and samplers hold the merged weights."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from held_weights import Threads
from tiny_models import EOS, PAD
from torch import Tensor
from transformers import Qwen2Config, Qwen2ForCausalLM

from rlinf.algorithms.objective import Objective
from rlinf.cluster.weights.layout import Layout
from rlinf.cluster.weights.segment import SegmentAddress, available
from rlinf.cluster.weights.transport import Collective, ObjectStore, SharedMemory
from rlinf.data.messages import SamplingParams, WeightUpdate
from rlinf.learners.stage import Stage
from rlinf.learners.torch import TorchLearner
from rlinf.models.causal_lm import CausalLMPolicy
from rlinf.models.weight_update import WeightTaker, WeightUpdateError
from rlinf.samplers.hf import HFSampler
from rlinf.schema import OptimizerConfig
from rlinf.train.workers.learner_worker import LearnerWorker
from rlinf.train.workers.sampler_worker import SamplerWorker


def model() -> Any:
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=512,
        hidden_size=128,
        intermediate_size=512,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        tie_word_embeddings=True,
    )
    return Qwen2ForCausalLM(config).eval()


def learner() -> LearnerWorker:
    pytest.importorskip("peft")
    from rlinf.models.loading import add_lora

    adapted = add_lora(model(), rank=1, alpha=2, dropout=0.0, target_modules=["q_proj", "v_proj"], seed=0)
    policy = CausalLMPolicy(adapted, sampling=SamplingParams(max_new_tokens=8))
    stage = Stage(name="train", objective=Objective.of("reinforce"), optimizer=OptimizerConfig())
    return LearnerWorker(
        TorchLearner(policy, stages=(stage,), seed=0, micro_batch_tokens=100), rank=0, bucket_bytes=200_000
    )


def sampler() -> SamplerWorker:
    options = {"eos_token_ids": [EOS], "pad_token_id": PAD, "seed": 7, "generation_batch_size": 8, "max_model_len": 64}
    return SamplerWorker(HFSampler(model(), **options))


def held(worker: SamplerWorker) -> dict[str, Tensor]:
    found: Any = worker._sampler
    return dict(found._model.named_parameters())


def train(worker: LearnerWorker) -> None:
    """Moves every adapter."""
    policy: Any = worker._learner.policy
    with torch.no_grad():
        for adapter in policy.own_adapters():
            adapter += 0.01 * torch.randn_like(adapter)


WAYS = {
    "object_store": ObjectStore,
    "shared_memory": SharedMemory,
    "collective": lambda one, other: Collective(one, other, device="cpu", fall_back=False, keep=True),
}


@pytest.mark.parametrize("way", [way for way in WAYS if way != "shared_memory" or available()])
def test_bytes_and_bits_by_every_way_and_after_a_restart(way: str) -> None:
    source, samplers = learner(), Threads([sampler(), sampler()])
    transport: Any = WAYS[way](Threads([source]), samplers)

    def restart(rank: int, error: Exception) -> None:
        raise error

    train(source)
    whole = transport.send(1, restart)["weight_update_bytes"]
    for version in (2, 3):
        train(source)
        sent = transport.send(version, restart)["weight_update_bytes"]
        assert 0 < sent < 0.02 * whole
    samplers.workers[1] = sampler()
    transport.send_again(1)
    merged = dict(source.weights(version=3, part=0).tensors)
    for part in range(1, len(source.weight_sources())):
        merged |= source.weights(version=3, part=part).tensors
    for worker in samplers.workers:
        assert merged.keys() <= held(worker).keys()
        assert all(torch.equal(held(worker)[name], tensor) for name, tensor in merged.items())
    train(source)
    assert transport.send(4, restart)["weight_update_bytes"] < 0.02 * whole


def test_an_adapter_without_its_layer_is_refused() -> None:
    tensors = {f"w{mark}": torch.ones(1, 1) for mark in ("@down", "@up", "@scale")}
    with pytest.raises(WeightUpdateError, match="w itself never did"):
        WeightTaker().take(model(), WeightUpdate(1, tensors, partial=True))


def test_the_address_of_weights_travels_as_json() -> None:
    layout = Layout.of({"a": torch.zeros(2, 3), "b": torch.zeros((), dtype=torch.bfloat16)})
    address = SegmentAddress("/proc/1/fd/3", layout, 7, 1, 2, partial=True)
    assert SegmentAddress.of_message(address.message()) == address
    assert json.loads(address.message())["path"] == "/proc/1/fd/3"
    with pytest.raises(ValueError, match="utf-8"):
        SegmentAddress.of_message(b"\x80\x04.")
