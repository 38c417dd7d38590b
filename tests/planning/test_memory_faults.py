"""Ten faults of a cluster run, planted in files that are otherwise right: each is found by name on a laptop."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from config_cases import Write

from rlinf.config import Config, ConfigErrors, load
from rlinf.data.messages import PolicyOutput
from rlinf.models.causal_lm import CausalLMPolicy
from rlinf.models.loading import make_tokenizer
from rlinf.planning.describe import plan
from rlinf.planning.memory import driver_bytes, engine_cache, estimate

CLUSTER = """
run: {name: cluster}
env: {id: "rlinf_envs:rlinf/ReasoningGym-v0", kwargs: {task: chain_sum}}
data: {max_prompt_length: 1024}
policy:
  architecture: {model_type: qwen2, hidden_size: 3584, intermediate_size: 18944, num_hidden_layers: 28,
    num_attention_heads: 28, num_key_value_heads: 4, vocab_size: 152064, tie_word_embeddings: false}
  gradient_checkpointing: true
rollout:
  {sampler: vllm, batch_size: 64, max_new_tokens: 7168, num_samplers: 8,
    vllm: {gpu_memory_utilization: 0.8, max_num_seqs: 64}}
algorithm: {group_size: 8, rollout_correction: {preset: tis}}
learner: {backend: fsdp, num_workers: 8, micro_batch_tokens: 8192, offload: {optimizer: true, weights: true}}
cluster: {gpu_memory_gb: 80}
"""
MEGATRON = "learner.backend=megatron"

PLANTED: dict[str, tuple[list[str], str]] = {
    "tensor parallelism that does not divide the heads": (
        [MEGATRON, "learner.megatron.tensor_parallel=8", "policy.gradient_checkpointing=false"],
        "does not divide num_attention_heads 28",
    ),
    "a layout that does not divide the ranks": (
        [MEGATRON, "learner.megatron.tensor_parallel=7", "policy.gradient_checkpointing=false"],
        "does not divide learner.num_workers 8",
    ),
    "an engine's cache without room for one row": (
        ["rollout.vllm.kv_cache_memory_mb=200"],
        "the engine does not start",
    ),
    "an engine's cache that overflows at the 99th percentile": (
        ["rollout.vllm.max_num_seqs=256", "rollout.batch_size=512", "rollout.vllm.gpu_memory_utilization=0.5"],
        "in 99 of 100 moments",
    ),
    "a learner that a GPU does not hold": (
        ["learner.backend=torch", "learner.num_workers=8"],
        "a GPU of 80 GB does not hold",
    ),
    "sampler and learner awake on one GPU": (
        ["rollout.sleep=never", "learner.offload={}"],
        "stay on one GPU",
    ),
    "a driver that holds the whole batch": (
        ["rollout.batch_size=65536", "rollout.stop=[END]"],
        "the driver holds a batch",
    ),
    "an engine wider than a machine": (
        ["rollout.vllm.tensor_parallel_size=16", "rollout.num_samplers=1"],
        "more than the 8 GPUs of a machine",
    ),
    "responses longer than the engine's limit": (
        ["rollout.vllm.max_model_len=4096"],
        "max_model_len",
    ),
}


def found_in(text: str, write: Write, overrides: list[str]) -> str:
    """What `rlinf check` reports: the mistakes of the file, or the warnings of its plan."""
    try:
        return "\n".join(plan(load(write(text), overrides)).warnings)
    except ConfigErrors as errors:
        return str(errors)


def test_the_file_without_a_fault_is_right(write: Write) -> None:
    assert "GPU of" not in found_in(CLUSTER, write, [])
    for words in (words for _, words in PLANTED.values()):
        assert words not in found_in(CLUSTER, write, [])


@pytest.mark.parametrize("fault", PLANTED)
def test_a_planted_fault_is_found_by_name(fault: str, write: Write) -> None:
    overrides, words = PLANTED[fault]
    assert words in found_in(CLUSTER, write, overrides)


def test_a_tensor_on_another_device_is_found_with_its_line(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tenth: the rehearsal names the operation and where it is."""
    from rlinf.train.rehearsal.rank import rehearse_rank

    if dist.is_initialized():
        dist.destroy_process_group()
    whole = CausalLMPolicy.evaluate

    def elsewhere(policy: CausalLMPolicy, *arguments: Any, **options: Any) -> PolicyOutput:
        output = whole(policy, *arguments, **options)
        return PolicyOutput(output.logprobs + torch.ones(output.logprobs.shape), output.entropy, output.values)

    monkeypatch.setattr(CausalLMPolicy, "evaluate", elsewhere)
    make_tokenizer(None, vocab_size=300, split_digits=True, texts=lambda: ["1 + 1 = 2"]).save_pretrained(str(tmp_path))
    report = rehearse_rank(load(write(SMALL)), str(tmp_path), rank=0)
    assert any("test_memory_faults.py" in str(mistake) for mistake in report.observed.mistakes)


SMALL = """
run: {name: small}
env: {id: "rlinf_envs:rlinf/ReasoningGym-v0", kwargs: {task: chain_sum}}
data: {max_prompt_length: 8}
policy:
  architecture: {model_type: qwen2, hidden_size: 64, intermediate_size: 128, num_hidden_layers: 1,
    num_attention_heads: 4, num_key_value_heads: 2, vocab_size: 320}
rollout: {sampler: hf, batch_size: 4, max_new_tokens: 24}
algorithm: {group_size: 4}
learner: {micro_batch_tokens: 64}
cluster: {backend: local}
"""


def configured(write: Write, *overrides: str) -> Config:
    return load(write(CLUSTER), list(overrides))


def test_tokens_of_a_cache_by_hand(write: Write) -> None:
    """28 layers x 4 heads x 128 x 2 (keys, values) x 2 bytes = 57,344 bytes a token; 1 GiB has room for 18,724."""
    from rlinf.models.architecture_numbers import decoder_shape

    config = configured(write, "rollout.vllm.kv_cache_memory_mb=1024")
    decoder = decoder_shape(config.policy)
    assert decoder is not None
    cache = engine_cache(config, decoder, estimate(config, decoder, 8), 2, 80e9)
    assert (cache.tokens, cache.whole_rows, cache.side_by_side) == (18_724, 2, 64)
    # 64 x (1024 + 3584) + 2.326 x sqrt(64 / 12) x 7168
    assert cache.in_use == 294_912 + 38_504


def test_bytes_of_the_driver_by_hand(write: Write) -> None:
    """512 rows of 8,192 tokens, 25 bytes each; nothing where rows stay with samplers."""
    assert driver_bytes(configured(write), None) == 0
    assert driver_bytes(configured(write, "rollout.stop=[END]"), None) == 25 * 512 * 8192
