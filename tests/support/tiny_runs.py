"""A run small enough to be made many times in a test."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import rlinf.train
from rlinf.config import Config, load_mapping
from rlinf.train import RunResult

TASK: dict[str, Any] = {
    "task": "chain_sum",
    "size": 200,
    "params": {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1},
    "answer_format": "plain",
}
GRADED_BY_LENGTH: dict[str, Any] = {**TASK, "reward": {"length": {"weight": 1.0, "target": 5, "slack": 100}}}
"""An untrained model earns something in every group, so every update changes the weights."""


def mapping(folder: Path, **sections: Mapping[str, Any]) -> dict[str, Any]:
    """A text run of a few steps over a model of 20 000 weights; ``sections`` replace keys."""
    base: dict[str, dict[str, Any]] = {
        "run": {"name": "tiny", "dir": str(folder), "max_steps": 4},
        "env": {
            "id": "rlinf_envs:rlinf/ReasoningGym-v0",
            "kwargs": {
                **TASK,
                # A model this small is never right: a letter distinguishes its responses and gives a gradient.
                "reward": {"correctness": 1.0, "format": {"weight": 0.5, "pattern": "[A-Za-z]"}},
            },
        },
        "data": {"max_prompt_length": 64},
        "policy": {
            "tokenizer": {"vocab_size": 300},
            "architecture": {
                "model_type": "qwen2",
                "hidden_size": 32,
                "intermediate_size": 64,
                "num_hidden_layers": 1,
                "num_attention_heads": 2,
                "num_key_value_heads": 2,
                "tie_word_embeddings": True,
            },
        },
        "sft": {"steps": 3, "batch_size": 8},
        "rollout": {"sampler": "hf", "batch_size": 4, "max_new_tokens": 4},
        "algorithm": {"group_size": 4},
        "learner": {"optimizer": {"lr": 1e-3}},
        "cluster": {"backend": "local"},
        "evaluation": {"size": 8, "env_kwargs": {"split": "eval"}},
        "checkpoint": {"every": 1},
        "logging": {"progress": "none", "tensorboard": False, "samples_every": 2},
    }
    for section, keys in sections.items():
        base.setdefault(section, {}).update(keys)
    return base


def config(folder: Path, **sections: Mapping[str, Any]) -> Config:
    return load_mapping(mapping(folder, **sections), source="test")


def run(config: Config) -> RunResult:
    """Trains, without the page about it, which takes as long as a small run."""
    return rlinf.train.run(config, report=False)


def logged(folder: Path) -> list[dict[str, Any]]:
    """The lines of metrics of reinforcement learning; those of a warm start have negative steps."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if line["step"] >= 0]
