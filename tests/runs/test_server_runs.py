"""A run from YAML through Ray whose responses come from a real vLLM server, over-sampled: cut off and continued."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import gymnasium
import pytest
import rlinf_envs  # noqa: F401  # registers the environment
from tiny_runs import GRADED_BY_LENGTH, config
from vllm_server import served

from rlinf.models.tokenizer import train_tokenizer
from rlinf.train import run

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vLLM is not installed"),
]
STEPS = 6


def save_policy(folder: Path) -> None:
    """A tiny random model with a tokenizer of the task."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    env = gymnasium.make_vec("rlinf_envs:rlinf/ReasoningGym-v0", num_envs=1, **GRADED_BY_LENGTH).unwrapped
    texts = (text for pair in env.demonstrations(range(50)) for text in pair)  # type: ignore[attr-defined]
    tokenizer = train_tokenizer(texts, vocab_size=300)
    torch.manual_seed(0)
    special = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id, "bos_token_id": None}
    model = Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=len(tokenizer), hidden_size=64, intermediate_size=64, num_hidden_layers=1,
            num_attention_heads=2, num_key_value_heads=2, tie_word_embeddings=True, **special,
        )
    )  # fmt: skip
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def test_a_run_on_a_server_keeps_what_it_cuts_off(tmp_path: Path) -> None:
    policy, folder = tmp_path / "policy", tmp_path / "run"
    save_policy(policy)
    # The engine has room for two and a half of the six groups, so some are complete while others have just begun.
    with served(policy, max_num_seqs=10) as server:
        run(
            config(
                folder,
                run={"max_steps": STEPS},
                env={"kwargs": GRADED_BY_LENGTH},
                policy={"path": str(policy), "tokenizer": {}, "architecture": {}},
                sft={"steps": 0},
                rollout={
                    "sampler": "server",
                    "server": {"base_url": server.url, "timeout_s": 120.0},
                    "batch_size": 4,
                    "over_sampling": 0.5,
                    "max_new_tokens": 48,
                },
                evaluation={"size": 0, "env_kwargs": None},
                checkpoint={"every": 0},
                cluster={"backend": "ray"},
            )
        )
    steps = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    steps = [row for row in steps if "time/step_s" in row]
    assert [row["step"] for row in steps] == list(range(1, STEPS + 1))
    assert sum(row["rollout/responses_continued"] for row in steps) > 0
    assert max(row["rollout/staleness"] for row in steps) > 0
    for row in steps:
        assert row["rollout/staleness"] < 2
        assert row["train/grad_norm"] > 0.0
        assert row["weights/weight_update_bytes"] > 0.0
