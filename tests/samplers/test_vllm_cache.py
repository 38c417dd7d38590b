"""The size of vLLM's cache on a CPU."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

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
    monkeypatch.setattr(vllm_cache, "_memory_bytes", lambda: 24 << 30)

    def size(tokens: int) -> int:
        return vllm_cache.cpu_cache_mb(str(tmp_path), tokens=tokens, bytes_per_value=2)

    assert size(64 * 96) == 135  # 30 layers of 3 heads of 64, keys and values: 23,040 bytes a token
    assert size(100) == 64
    assert size(1 << 30) == 3072
