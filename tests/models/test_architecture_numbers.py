"""Parameters that are counted from a configuration alone, against the model that transformers makes of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from rlinf.models.architecture_numbers import FAMILIES, decoder_shape, most_positions
from rlinf.schema import PolicyConfig

SMALL = {
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 100,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "head_dim": 12}


@pytest.mark.parametrize("family", FAMILIES)
def test_the_count_is_that_of_the_model(family: str, tmp_path: Path) -> None:
    """Also from ``config.json``, in which transformers leaves out what is its default."""
    config = AutoConfig.for_model(family, **SMALL, **(EXPERTS if family == "qwen3_moe" else {}))
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    (tmp_path / "config.json").write_text(json.dumps(config.to_diff_dict()))
    decoder = decoder_shape(PolicyConfig(path=str(tmp_path)))
    assert decoder is not None
    assert decoder.parameters == sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize(
    ("rope", "positions"),
    [
        ({}, 32),
        ({"rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}}, 128),
        ({"rope_scaling": {"rope_type": "linear", "factor": 2}}, 64),
        ({"rope_parameters": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8}}, 32),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 32}}, 32),
        ({"rope_scaling": None, "rope_parameters": {"rope_type": "default", "rope_theta": 1e4}}, 32),
    ],
)
def test_scaled_positions_are_counted(rope: dict[str, Any], positions: int) -> None:
    architecture = {"model_type": "qwen2", "max_position_embeddings": 32, **rope}
    assert most_positions(PolicyConfig(architecture=architecture)) == positions
