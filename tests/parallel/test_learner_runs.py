"""Whole runs through Ray: three steps of GRPO with a megatron or FSDP learner report what the torch learner reports."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rlinf.config import load_mapping
from rlinf.train import run

SLEEPER: dict[str, Any] = {"offload": {"optimizer": True, "weights": True}, "weight_bucket_mb": 1}
DENSE = {"model_type": "qwen2"}
EXPERTS = {"model_type": "qwen3_moe", "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
LEARNERS: dict[str, dict[str, Any]] = {
    "tensor 2": {"backend": "megatron", "megatron": {"tensor_parallel": 2, "sequence_parallel": True}},
    "pipeline 2": {"backend": "megatron", "megatron": {"pipeline_parallel": 2}},
    "data 2": {"backend": "megatron"},
    "fsdp": {"backend": "fsdp"},
}


def settings(folder: Path, learner: dict[str, Any], family: dict[str, Any]) -> dict[str, Any]:
    """A tiny policy, two minibatches, a reference policy; entropy keeps the gradient from being 0."""
    task = {"task": "chain_sum", "size": 200, "params": {"min_terms": 2, "max_terms": 2, "max_digits": 1}}
    shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    return {
        "run": {"name": "run", "dir": str(folder), "max_steps": 3},
        "env": {"id": "rlinf_envs:rlinf/ReasoningGym-v0", "kwargs": {**task, "answer_format": "plain"}},
        "data": {"max_prompt_length": 64},
        "policy": {
            "tokenizer": {"vocab_size": 300},
            "architecture": {"num_key_value_heads": 2, "tie_word_embeddings": True, **shape, **family},
        },
        "sft": {"steps": 3, "batch_size": 8},
        "rollout": {"sampler": "hf", "batch_size": 4, "max_new_tokens": 4},
        "algorithm": {"group_size": 4, "num_minibatches": 2, "kl_beta": 0.05, "entropy_bonus": 0.01},
        "learner": {"optimizer": {"lr": 1e-3, "eps": 1e-5}, **learner},
        "cluster": {"backend": "ray" if learner else "local"},
        "evaluation": {"size": 8, "env_kwargs": {"split": "eval"}},
        "logging": {"progress": "none", "tensorboard": False},
    }


def metrics(folder: Path, learner: dict[str, Any], family: dict[str, Any]) -> list[dict[str, float]]:
    """What a run with this learner logged."""
    return metrics_of(settings(folder, learner, family))


def metrics_of(given: dict[str, Any]) -> list[dict[str, float]]:
    """What the run logged, step by step, without what depends on the clock."""
    run(load_mapping(given, source="test"))
    lines = [json.loads(line) for line in Path(given["run"]["dir"], "metrics.jsonl").read_text().splitlines()]
    kept = ("train/", "reward/", "eval/accuracy", "rollout/")
    return [{k: v for k, v in line.items() if k.startswith(kept)} for line in lines if line["step"] >= 0]


@pytest.fixture(scope="module")
def dense(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, float]]:
    """What the torch learner reports of the dense policy."""
    return metrics(tmp_path_factory.mktemp("torch"), {}, DENSE)


@pytest.mark.slow
@pytest.mark.megatron
@pytest.mark.parametrize("name", LEARNERS)
def test_three_steps_give_the_same_metrics(tmp_path: Path, dense: list[dict[str, float]], name: str) -> None:
    assert dense[1]["train/grad_norm"] > 0
    assert_same(metrics(tmp_path, {"num_workers": 2, **LEARNERS[name]}, DENSE), dense)


@pytest.mark.slow
@pytest.mark.megatron
def test_experts_that_sleep_while_samplers_answer(tmp_path: Path) -> None:
    """Over two ranks, with weights that travel in parts; the log shows what moved."""
    wanted = metrics(tmp_path / "torch", {}, EXPERTS)
    learner = {"backend": "megatron", "num_workers": 2, "megatron": {"expert_parallel": 2}, **SLEEPER}
    assert_same(metrics(tmp_path / "other", learner, EXPERTS), wanted)
    last = json.loads((tmp_path / "other" / "metrics.jsonl").read_text().splitlines()[-1])
    assert last["weights/offload_bytes"] > 0
    assert last["train/expert_load_max"] >= 1


@pytest.mark.slow
@pytest.mark.megatron
def test_stages_send_the_same_weights_by_every_transport(tmp_path: Path) -> None:
    learner = {"backend": "megatron", "num_workers": 2, "megatron": {"pipeline_parallel": 2}}
    found = []
    for way in ("shared_memory", "collective"):
        changed = settings(tmp_path / way, learner, DENSE)
        changed["rollout"] |= {"weight_transport": way, "num_samplers": 2}
        logged = metrics_of(changed)
        found.append((logged, json.loads((tmp_path / way / "summary.json").read_text())["params_sha256"]))
    assert found[0] == found[1]


def assert_same(found: list[dict[str, float]], wanted: list[dict[str, float]]) -> None:
    assert len(found) == len(wanted)
    for here, there in zip(found, wanted, strict=True):
        assert here.keys() - there.keys() <= {"train/expert_load_max", "train/expert_idle"}
        # PyTorch's learners alone log the size of an update.
        assert there.keys() - here.keys() <= {"train/update_ratio"}
        for name in there.keys() & here.keys():
            # The gap between sampler and learner is rounding itself.
            assert "gap" in name or here[name] == pytest.approx(there[name], rel=1e-4, abs=1e-4), name
