"""The size of vLLM's cache on a CPU."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from rlinf.base.errors import UserError
from rlinf.models.loading import checkpoint_config
from rlinf.samplers import vllm_cache

SMOLLM2 = {
    "model_type": "llama",
    "num_hidden_layers": 30,
    "hidden_size": 576,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "intermediate_size": 1536,
}


def test_it_holds_every_response_of_a_real_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config.json").write_text(json.dumps(SMOLLM2))
    monkeypatch.setattr(vllm_cache, "memory_bytes", lambda: 24 << 30)

    def size(tokens: int) -> int:
        return vllm_cache.cpu_cache_mb(str(tmp_path), tokens=tokens, bytes_per_value=2)

    assert size(64 * 96) == 135  # 30 layers of 3 heads of 64, keys and values: 23,040 bytes a token
    assert size(100) == 64
    assert size(1 << 30) == 3072


@pytest.mark.parametrize(
    ("dtype", "capability", "amx", "block"),
    [
        ("bfloat16", "AVX512", False, 16),
        ("bfloat16", "AVX512", True, 32),
        ("bfloat16", "AVX2", False, 32),
        ("float32", "AVX512", False, 32),
    ],
)
def test_blocks_are_small_where_their_kernel_is_as_fast(
    monkeypatch: pytest.MonkeyPatch, dtype: str, capability: str, amx: bool, block: int
) -> None:
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: amx)
    assert vllm_cache.cpu_block(dtype) == block


@pytest.mark.vllm
def test_heads_that_its_attention_lacks_are_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(SMOLLM2 | {"hidden_size": 144}))
    with pytest.raises(UserError, match=r"heads of 32, 64, .* numbers, and this model's have 16"):
        vllm_cache.require_head_size(checkpoint_config(str(tmp_path)))
