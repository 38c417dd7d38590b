"""A vLLM engine over two processes (tensor parallel): log-probabilities, and weights that reach both."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import torch
from tiny_models import EOS, forward_logprobs, make_requests, tiny_qwen2

from rlinf.data.messages import SamplingParams, WeightUpdate
from rlinf.samplers.vllm import VllmSampler
from rlinf.schema.rollout import VllmConfig

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vLLM is not installed"),
]


def test_updates_reach_every_rank(tmp_path: Path) -> None:
    model = tiny_qwen2(head_dim=32)
    model.save_pretrained(tmp_path)
    config = VllmConfig(kv_cache_memory_mb=16, dtype="float32", max_num_seqs=64, tensor_parallel_size=2)
    sampler = VllmSampler(tmp_path, config, eos_token_ids=[EOS], seed=7, max_model_len=128)

    def gap() -> float:
        requests = make_requests(SamplingParams(max_new_tokens=16))
        return max(
            float((torch.tensor(done.logprobs) - expected).abs().max())
            for done in sampler.sample(requests)
            for expected in [forward_logprobs(model, requests[done.request_id].prompt_ids, done.token_ids)]
        )

    assert gap() < 5e-5
    generator = torch.Generator().manual_seed(1)
    for version in (1, 2):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.05 * torch.randn(parameter.shape, generator=generator))
        assert gap() > 0.01, "the change must show, or this test shows nothing"
        sampler.load(WeightUpdate(version, {name: p.detach() for name, p in model.named_parameters()}))
        assert gap() < 5e-5
    assert sampler.restarts == 0
    sampler._engine.engine_core.shutdown()
