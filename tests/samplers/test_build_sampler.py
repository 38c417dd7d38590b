"""Samplers from configuration."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tiny_models import EOS, PAD, tiny_qwen2

from rlinf.data.messages import SampleRequest, SamplingParams, WeightUpdate
from rlinf.models.checkpoint_names import by_expert
from rlinf.models.weight_update import WeightLayout, WeightUpdateError, copy_weights
from rlinf.samplers import SAMPLERS, SamplerSpec, build_sampler, environment, resolve_name
from rlinf.samplers.hf import HFSampler
from rlinf.samplers.memory_files import from_shared_memory, in_shared_memory
from rlinf.schema.rollout import RolloutConfig


@pytest.fixture
def spec(tmp_path: Path) -> SamplerSpec:
    tiny_qwen2().save_pretrained(tmp_path)
    return SamplerSpec(str(tmp_path), (EOS,), PAD, seed=0, max_model_len=64)


def test_hf_from_a_folder_of_weights(spec: SamplerSpec) -> None:
    sampler = build_sampler(RolloutConfig(sampler="auto"), spec)
    assert isinstance(sampler, HFSampler)
    (done,) = sampler.sample([SampleRequest(0, (3, 4), 1, SamplingParams(max_new_tokens=4), (0,))])
    assert done.token_ids


def test_hf_from_a_configuration_takes_its_weights_later(spec: SamplerSpec) -> None:
    request = SampleRequest(0, (3, 4), 4, SamplingParams(max_new_tokens=8), (0,))
    expected = build_sampler(RolloutConfig(sampler="hf"), spec).sample([request])
    sampler = build_sampler(RolloutConfig(sampler="hf"), replace(spec, random_weights=True))
    assert sampler.sample([request]) != expected
    sampler.load(WeightUpdate(0, dict(tiny_qwen2().named_parameters())))
    assert [done.token_ids for done in sampler.sample([request])] == [done.token_ids for done in expected]


def test_names() -> None:
    assert resolve_name("auto", device="cpu") == "hf"
    assert resolve_name("vllm", device="cpu") == "vllm"
    with pytest.raises(ValueError, match="'vlm' is not one of auto, hf, vllm, server"):
        resolve_name("vlm", device="cpu")


def test_environment_of_the_process() -> None:
    assert environment("hf", device="cpu") == {}
    assert environment("vllm", device="cpu")["TORCH_COMPILE_DISABLE"] == "1"
    assert "TORCH_COMPILE_DISABLE" not in environment("vllm", device="cuda:0")


@pytest.mark.skipif(importlib.util.find_spec("vllm") is not None, reason="vLLM is installed")
def test_absent_vllm_is_named_with_its_extra(spec: SamplerSpec) -> None:
    with pytest.raises(ModuleNotFoundError, match=r"oneloop-rl\[vllm\].*install-vllm-cpu\.sh"):
        build_sampler(RolloutConfig(sampler="vllm"), spec)


def test_package_imports_nothing_heavy() -> None:
    code = "import sys, rlinf.samplers; print(sorted({'torch', 'transformers', 'vllm'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_sampler_is_listed() -> None:
    assert list(SAMPLERS) == ["hf", "vllm", "server"]


def test_layout_of_a_folder_is_that_of_the_model(tmp_path: Path) -> None:
    for tied in (True, False):
        model = tiny_qwen2(tied=tied)
        model.save_pretrained(tmp_path)
        assert WeightLayout.of_folder(str(tmp_path)) == WeightLayout.of_model(model)
        assert ("lm_head.weight" in WeightLayout.of_model(model).distinct(update_of(model))) is not tied


def update_of(model: torch.nn.Module) -> WeightUpdate:
    return WeightUpdate(1, dict(model.named_parameters(remove_duplicate=False)))


def test_weights_survive_the_way_to_other_processes() -> None:
    """Every worker of a parallel engine reads them, so once is not enough."""
    tensors = {"a": torch.arange(6.0), "b": torch.ones(2, 3, dtype=torch.bfloat16).t()}
    with in_shared_memory(tensors) as path:
        for _ in range(2):
            arrived = dict(from_shared_memory(path))
            assert arrived.keys() == tensors.keys()
            assert all(torch.equal(arrived[name], tensor) for name, tensor in tensors.items())
    assert not Path(path).exists()


def test_copies_are_cast_to_the_models_type() -> None:
    model, source = tiny_qwen2().to(torch.bfloat16), tiny_qwen2(seed=4)
    metrics = copy_weights(model, WeightUpdate(1, dict(source.named_parameters())))
    assert metrics["weight_update_bytes"] == sum(4 * p.numel() for p in source.parameters())
    assert torch.equal(model.model.norm.weight, source.model.norm.weight.to(torch.bfloat16))


def test_an_update_in_parts_is_complete_with_the_last() -> None:
    """A sampler copies each part as it comes, and reports after the last what never came."""
    model, source = tiny_qwen2(tied=True), tiny_qwen2(tied=True, seed=1)
    named = list(source.named_parameters())
    arrived: set[str] = set()
    for part in range(3):
        update = WeightUpdate(1, dict(named[part::3]), part, 3)
        copy_weights(model, update, arrived)
    assert all(torch.equal(mine, theirs) for mine, (_, theirs) in zip(model.parameters(), named, strict=True))
    copy_weights(model, WeightUpdate(2, dict(named[0::3]), 0, 2), arrived)
    with pytest.raises(WeightUpdateError, match="lacks"):
        copy_weights(model, WeightUpdate(2, dict(named[1::3]), 1, 2), arrived)


def test_experts_travel_one_by_one() -> None:
    """transformers stacks them; updates name each, as checkpoint files do."""
    from transformers import AutoModelForCausalLM, Qwen3MoeConfig

    config = Qwen3MoeConfig(
        vocab_size=31, hidden_size=16, intermediate_size=8, moe_intermediate_size=8, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=2, num_experts=4, num_experts_per_tok=2,
    )  # fmt: skip
    torch.manual_seed(0)
    source, model = (AutoModelForCausalLM.from_config(config) for _ in range(2))
    tensors = dict(by_expert(source.named_parameters()))
    assert tensors["model.layers.1.mlp.experts.3.down_proj.weight"].shape == (16, 8)
    copy_weights(model, WeightUpdate(1, {name: tensor.clone() for name, tensor in tensors.items()}))
    for mine, theirs in zip(model.parameters(), source.parameters(), strict=True):
        assert torch.equal(mine, theirs)
