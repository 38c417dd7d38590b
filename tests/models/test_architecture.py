"""Architectures that cannot be trained as language models are refused in words, by check and by training alike."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support import tiny_runs

from rlinf.commands.text_check import examine_text
from rlinf.config import load_mapping
from rlinf.models.architecture import PolicyError

CASES = [
    ({"model_type": "internvl"}, "internvl: which is none of the vision-language models"),
    ({"model_type": "t5"}, "t5 is no causal language model"),
    ({"model_type": "mamba"}, "no mamba can be made: MambaForCausalLM does not support an attention"),
    ({"model_type": "bert"}, "bert keeps no keys and values"),
    ({"num_attention_heads": 0}, "no qwen2 can be made|refuses a value"),
    ({"hidden_size": "wide"}, "qwen2 refuses a value: .*'hidden_size' expected int"),
    ({"hidden_size": 0}, "no qwen2 can be made"),
    ({"num_hidden_layers": None}, "qwen2 refuses a value: .*'num_hidden_layers' expected int"),
    ({"vocab_size": "large"}, r"policy\.architecture\.vocab_size must be a whole number, not 'large'"),
]


def _mapping(folder: Path, changed: dict[str, Any]) -> dict[str, Any]:
    written = tiny_runs.mapping(folder)
    del written["sft"], written["evaluation"]
    written["policy"]["architecture"] |= changed
    return written


@pytest.mark.parametrize(("changed", "words"), CASES, ids=lambda value: str(value)[:24])
def test_it_is_refused_by_check(changed: dict[str, Any], words: str, tmp_path: Path) -> None:
    report = examine_text(load_mapping(_mapping(tmp_path, changed)))
    [finding] = [found for found in report.findings if found.serious]
    with pytest.raises(PolicyError, match=words):
        raise PolicyError(finding.message)


@pytest.mark.parametrize("number", [0, 1, 5, 7])
def test_it_is_refused_by_training(number: int, tmp_path: Path) -> None:
    changed, words = CASES[number]
    with pytest.raises(PolicyError, match=words):
        tiny_runs.run(load_mapping(_mapping(tmp_path / "run", changed)))


@pytest.mark.parametrize("model_type", ["qwen2", "llama", "gpt2"])
def test_models_of_text_pass(model_type: str, tmp_path: Path) -> None:
    report = examine_text(load_mapping(_mapping(tmp_path, {"model_type": model_type})))
    assert [found.message for found in report.findings if found.serious] == []
