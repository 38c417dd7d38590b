"""Runs of a mixture of experts whose learner replays the sampler's experts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_runs import config, logged

from rlinf.config import Config, ConfigErrors
from rlinf.config.checks import router_replay
from rlinf.data.inputs import TextInputs
from rlinf.planning.describe import plan
from rlinf.train import run
from rlinf.train.saved_batches import BatchFolder

LAYERS, CHOSEN = 2, 2
MOE = {
    "model_type": "qwen3_moe",
    "hidden_size": 32,
    "intermediate_size": 64,
    "moe_intermediate_size": 16,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "num_experts": 4,
    "num_experts_per_tok": CHOSEN,
    "tie_word_embeddings": True,
}


def made(folder: Path, **sections: Any) -> Config:
    base: dict[str, Any] = {
        "run": {"max_steps": 2},
        "policy": {"architecture": MOE},
        "rollout": {"sampler": "hf", "router_replay": True},
        "evaluation": {"size": 4},
    }
    for section, keys in sections.items():
        base[section] = {**base.get(section, {}), **keys}
    return config(folder, **base)


def test_routes_travel_with_a_batch_and_a_saved_one_gives_the_same_bits(tmp_path: Path) -> None:
    run(made(tmp_path / "run"), report=False, save_batches=2)
    lines = logged(tmp_path / "run")
    assert max(line["train/sampler_logprob_gap"] for line in lines if "train/sampler_logprob_gap" in line) < 1e-5
    rows, _ = BatchFolder.open(tmp_path / "run" / "batches").load(0)
    inputs = TextInputs.of(rows.inputs)
    assert inputs.routes is not None
    assert inputs.routes.dtype == torch.int16
    assert inputs.routes.shape[2] == LAYERS * CHOSEN
    known = (inputs.routes >= 0).all(dim=2).sum(dim=1)
    assert known.tolist() == (inputs.prompt_lengths + inputs.response_lengths - 1).tolist()
    run(made(tmp_path / "again"), report=False, from_batches=tmp_path / "run" / "batches")
    assert weights_of(tmp_path / "run") == weights_of(tmp_path / "again")


def weights_of(folder: Path) -> str:
    return str(json.loads((folder / "summary.json").read_text())["params_sha256"])


@pytest.mark.slow
@pytest.mark.usefixtures("ray_session")
def test_on_ray_the_same_is_learned(tmp_path: Path) -> None:
    run(made(tmp_path / "here"), report=False)
    run(made(tmp_path / "there", cluster={"backend": "ray"}, env={"num_workers": 2}), report=False)
    assert weights_of(tmp_path / "here") == weights_of(tmp_path / "there")


def test_check_counts_the_memory_of_routes(tmp_path: Path) -> None:
    """16 rows of at most 64 + 4 tokens, 2 layers x 2 experts of 2 bytes: 8,704 bytes."""
    assert "at most 9 kB: 2 layers x 2 of each token, 2 bytes each" in str(plan(made(tmp_path)))


@pytest.mark.parametrize(
    ("sections", "words"),
    [
        ({"policy": {"architecture": {**MOE, "model_type": "qwen2"}}}, "the policy has no experts"),
        ({"rollout": {"sampler": "auto"}}, "auto does not return the experts of a token"),
        (
            {"learner": {"backend": "megatron", "megatron": {"recompute": "full"}}},
            "recomputed layers are computed after",
        ),
        ({"rollout": {"sampler": "vllm"}}, "returns the experts of a token on GPUs alone"),
        ({"policy": {"gradient_checkpointing": True}}, "computes a layer again"),
        ({"rollout": {"staleness": 1}}, "continues responses under newer weights"),
        ({"env": {"max_turns": 2}}, "later turns are not recorded"),
    ],
)
def test_what_can_not_replay_is_refused(
    sections: dict[str, Any], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(router_replay, "gpu_count", lambda: 0)
    with pytest.raises(ConfigErrors, match=words):
        made(tmp_path, **sections)


def test_an_engine_that_can_not_return_experts_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(router_replay, "gpu_count", lambda: 1)
    monkeypatch.setattr(router_replay, "engine_arguments", lambda: ("model", router_replay.FLAG))
    made(tmp_path, rollout={"sampler": "vllm"})
    monkeypatch.setattr(router_replay, "engine_arguments", lambda: ("model",))
    with pytest.raises(ConfigErrors, match="has no argument enable_return_routed_experts"):
        made(tmp_path, rollout={"sampler": "vllm"})


@pytest.mark.slow
@pytest.mark.usefixtures("ray_session")
@pytest.mark.parametrize(
    ("backend", "layout"),
    [
        ("fsdp", {}),
        pytest.param("megatron", {"expert_parallel": 2}, marks=pytest.mark.megatron),
    ],
)
def test_sharded_learners_replay_on_ray(tmp_path: Path, backend: str, layout: dict[str, Any]) -> None:
    """Their log-probabilities are those of the sampler, which chose the experts."""
    learner = {"backend": backend, "num_workers": 2, **({"megatron": layout} if layout else {})}
    run(made(tmp_path / "run", learner=learner, cluster={"backend": "ray"}), report=False)
    gaps = [line["train/sampler_logprob_gap"] for line in logged(tmp_path / "run") if line["step"] > 0]
    assert max(gaps) < 1e-4
