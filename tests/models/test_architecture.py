"""Architectures that cannot be trained as language models are refused in words, by check and by training alike."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from support import tiny_runs

from rlinf.commands.text_check import examine_text
from rlinf.config import load_mapping
from rlinf.models.architecture import PolicyError, random_causal_lm, unset_causal_lm

CASES = [
    ({"model_type": "internvl"}, "internvl: which is none of the vision-language models"),
    ({"model_type": "t5"}, "t5 is no causal language model"),
    ({"model_type": "mamba"}, "no mamba can be made: MambaForCausalLM does not support an attention"),
    ({"model_type": "bert"}, "bert keeps no keys and values"),
    ({"num_attention_heads": 0}, "no qwen2 can be made|refuses a value"),
    ({"hidden_size": "wide"}, "qwen2 refuses a value: .*'hidden_size' expected int"),
    ({"hidden_size": 0}, "no qwen2 can be made"),
    ({"num_hidden_layers": None}, "qwen2 refuses a value: .*'num_hidden_layers' expected int"),
    (
        {"model_type": "smolvlm"},
        r"smolvlm reads hidden_size, .* in a section of its own\. Write .*text_config: ",
    ),
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


@pytest.mark.parametrize("number", [0, 1, 5, 7, 8])
def test_it_is_refused_by_training(number: int, tmp_path: Path) -> None:
    changed, words = CASES[number]
    with pytest.raises(PolicyError, match=words):
        tiny_runs.run(load_mapping(_mapping(tmp_path / "run", changed)))


@pytest.mark.parametrize("model_type", ["qwen2", "llama", "gpt2"])
def test_models_of_text_pass(model_type: str, tmp_path: Path) -> None:
    report = examine_text(load_mapping(_mapping(tmp_path, {"model_type": model_type})))
    assert [found.message for found in report.findings if found.serious] == []


@pytest.mark.parametrize("model_type", ["qwen2", "gemma3_text", "llama"])
@pytest.mark.parametrize("tied", [True, False])
def test_a_model_without_weights_computes_alike_with_those_of_another(model_type: str, tied: bool) -> None:
    from transformers import AutoConfig

    sizes = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    sizes |= {"num_key_value_heads": 2, "vocab_size": 50, "head_dim": 16}
    config = AutoConfig.for_model(model_type, tie_word_embeddings=tied, **sizes)
    known, unset = random_causal_lm(config), unset_causal_lm(config, dtype=torch.float32)
    assert all(not parameter.any() for parameter in unset.parameters())
    assert [name for name, _ in unset.named_parameters()] == [name for name, _ in known.named_parameters()]
    unset.load_state_dict(known.state_dict())
    tokens = torch.arange(10)[None]
    assert torch.equal(unset.eval()(tokens).logits, known.eval()(tokens).logits)
