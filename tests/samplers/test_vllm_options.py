"""Every key of `rollout.vllm` reaches the engine's arguments, from YAML; no engine is started."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
from tiny_models import EOS, PAD, tiny_qwen2

from rlinf.base.errors import UserError
from rlinf.config import load
from rlinf.config.checks.engine_flags import RESERVED, engine_arguments
from rlinf.samplers import SamplerSpec, build_sampler

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vLLM is not installed"),
]

YAML = """
env: {id: "rlinf_envs:rlinf/ReasoningGym-v0", kwargs: {task: chain_sum}}
policy: {path: POLICY}
algorithm: {group_size: 4}
data: {max_prompt_length: 40}
rollout:
  sampler: vllm
  max_new_tokens: 50
  vllm:
    tensor_parallel_size: 2
    gpu_memory_utilization: 0.37
    kv_cache_memory_mb: 48
    max_num_seqs: 77
    enable_prefix_caching: false
    enable_chunked_prefill: CHUNKED
    enforce_eager: EAGER
    dtype: bfloat16
    max_model_len: 99
"""


class Captured(Exception):
    """Carries the arguments out instead of an engine."""

    def __init__(self, arguments: Any) -> None:
        self.arguments = arguments


def arguments_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, cpu: bool, chunked: bool = True, eager: bool = False
) -> Any:
    from vllm.platforms import current_platform
    from vllm.v1.engine.llm_engine import LLMEngine

    def capture(arguments: Any) -> None:
        raise Captured(arguments)

    monkeypatch.setattr(LLMEngine, "from_engine_args", staticmethod(capture))
    monkeypatch.setattr(type(current_platform), "is_cpu", lambda _self: cpu)
    policy, file = tmp_path / "policy", tmp_path / "run.yaml"
    tiny_qwen2(head_dim=32).save_pretrained(policy)  # a size that vLLM takes on a CPU
    text = YAML.replace("POLICY", str(policy)).replace("CHUNKED", str(chunked)).replace("EAGER", str(eager))
    file.write_text(text)
    spec = SamplerSpec(str(policy), (EOS,), PAD, seed=5, max_model_len=64)
    with pytest.raises(Captured) as caught:
        build_sampler(load(file).rollout, spec)
    return caught.value.arguments


@pytest.mark.parametrize(("chunked", "eager"), [(True, False), (False, True)])
def test_on_a_gpu_all_are_passed_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunked: bool, eager: bool
) -> None:
    found = arguments_of(tmp_path, monkeypatch, cpu=False, chunked=chunked, eager=eager)
    assert found.tensor_parallel_size == 2
    assert found.gpu_memory_utilization == 0.37
    assert found.kv_cache_memory_bytes == 48 << 20
    assert found.max_num_seqs == 77
    assert found.enable_prefix_caching is False
    assert found.enable_chunked_prefill is chunked
    assert found.enforce_eager is eager
    assert found.dtype == "bfloat16"
    assert found.max_model_len == 99
    assert found.enable_sleep_mode is True
    assert found.logprobs_mode == "processed_logprobs"


def test_the_arguments_that_are_read_from_the_source_are_those_of_the_class() -> None:
    from dataclasses import fields

    from vllm import EngineArgs

    engine_arguments.cache_clear()
    assert set(engine_arguments() or ()) == {item.name for item in fields(EngineArgs) if item.name[0] != "_"}
    assert set(RESERVED) <= set(engine_arguments() or ())


def test_further_arguments_reach_the_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    more = f"{YAML}    extra: {{kv_cache_dtype: fp8, speculative_config: {{method: ngram}}}}\n"
    monkeypatch.setattr(f"{__name__}.YAML", more)
    found = arguments_of(tmp_path, monkeypatch, cpu=False)
    assert (found.kv_cache_dtype, found.speculative_config) == ("fp8", {"method": "ngram"})
    monkeypatch.setattr("rlinf.config.checks.engine_flags.engine_arguments", lambda: None)
    monkeypatch.setattr(f"{__name__}.YAML", more.replace("kv_cache_dtype", "kv_dtype"))
    with pytest.raises(UserError, match=r"extra\.kv_dtype is no argument of vLLM"):
        arguments_of(tmp_path / "again", monkeypatch, cpu=False)


def test_on_a_cpu_what_it_can_not_do_is_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = arguments_of(tmp_path, monkeypatch, cpu=True)
    assert found.enable_chunked_prefill is False
    assert found.enforce_eager is True
    assert found.enable_sleep_mode is False
