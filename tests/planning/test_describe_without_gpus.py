"""A plan on a machine without GPUs reports what it lacks, and counts memory as the run will use it."""

from __future__ import annotations

from typing import Any

import pytest

from rlinf.config import load_mapping
from rlinf.planning import describe, suited
from rlinf.planning.describe import plan

BF16 = "emulated by this CPU"


def _plan(**sections: Any) -> str:
    shape = {"model_type": "qwen2", "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2}
    mapping: dict[str, Any] = {
        "env": {"id": "rlinf_envs:rlinf/ReasoningGym-v0", "kwargs": {"task": "chain_sum"}},
        "policy": {"architecture": {**shape, "num_attention_heads": 2, "num_key_value_heads": 2}},
    }
    for name, keys in sections.items():
        mapping.setdefault(name, {}).update(keys)
    return str(plan(load_mapping(mapping), cpus=2, gpus=0))


@pytest.mark.parametrize(
    ("dtype", "multiplies", "warned"),
    [("bfloat16", False, True), ("bfloat16", True, False), ("float32", False, False), ("auto", False, False)],
)
def test_sixteen_bits_that_a_cpu_emulates(
    dtype: str, multiplies: bool, warned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(describe, "multiplies_bfloat16", lambda: multiplies)
    assert (BF16 in _plan(policy={"dtype": dtype})) == warned


def test_sizes_for_gpus_report_how_many_are_needed() -> None:
    reported = _plan(learner={"backend": "fsdp", "num_workers": 8})
    assert "0 GPUs each" not in reported
    assert "the run needs 8 GPUs for its learner. cluster.gpu_memory_gb=80 plans" in reported
    assert "8 ranks (fsdp), needs 8 GPUs" in reported
    assert "this machine has no GPU" not in _plan()


def test_samplers_with_their_own_gpus_are_counted() -> None:
    vllm = {"sampler": "vllm", "num_samplers": 2, "vllm": {"tensor_parallel_size": 2}}
    sharded = {"backend": "fsdp", "num_workers": 8}
    reported = _plan(learner=sharded, rollout=vllm, cluster={"placement": "separate"})
    assert "2 (vllm), needs 4 GPUs" in reported
    assert "the run needs 8 GPUs for its learner and 4 GPUs for its samplers" in reported


def test_memory_is_that_of_the_micro_batch_which_the_machine_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    wide = {"learner": {"micro_batch_tokens": 16_384}, "rollout": {"batch_size": 64, "max_new_tokens": 2048}}
    monkeypatch.setattr(describe, "memory_bytes", lambda: 10**12)
    monkeypatch.setattr(suited, "memory_bytes", lambda: 10**12)
    large = _plan(**wide)
    monkeypatch.setattr(suited, "memory_bytes", lambda: 10**9)
    small = _plan(**wide)
    row = next(line for line in large.splitlines() if "a learner rank at most" in line)
    assert row not in small
