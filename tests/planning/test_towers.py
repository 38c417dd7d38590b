"""The memory plan of policies with towers: its counts are those of the models, and it names what does not fit."""

from __future__ import annotations

import re
from typing import Any

import pytest

from rlinf.config.experiment import Config
from rlinf.config.loading import load_mapping
from rlinf.planning.describe import plan
from rlinf.planning.towers import towers_memory

LANGUAGE: dict[str, Any] = {
    "model_type": "qwen2",
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 300,
}
VISION: dict[str, Any] = {
    "model_type": "siglip_vision_model",
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "patch_size": 4,
    "image_size": 16,
}
# A policy of a billion weights.
BILLION = (
    {**LANGUAGE, "hidden_size": 1536, "intermediate_size": 8960, "num_hidden_layers": 16, "num_attention_heads": 12},
    {**VISION, "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 12, "image_size": 224},
)


def config(language: dict[str, Any], vision: dict[str, Any], **learner: Any) -> Config:
    towers = {"language": {"architecture": language}, "vision": {"architecture": vision}}
    sections: dict[str, dict[str, object]] = {
        "env": {"id": "rlinf_envs:rlinf/Tabletop-v0"},
        "policy": {"name": "vla", "vla": towers},
        "algorithm": {"adv_type": "grpo", "group_size": 2},
        "learner": learner,
    }
    return load_mapping(sections, source="test")


@pytest.mark.parametrize("head", [False, True])
def test_towers_are_counted_as_they_are(head: bool) -> None:
    from rlinf.models.vla.backbones import random_tower, rebuilt

    vision = {**VISION, "vision_use_head": head}
    wanted = sum(
        parameter.numel() for each in (LANGUAGE, vision) for parameter in random_tower(rebuilt(each)).parameters()
    )
    memory = towers_memory(config(LANGUAGE, vision))
    assert memory is not None
    assert memory.parameters == memory.trained == wanted
    assert memory.rank == 16 * wanted


def test_a_billion_weights_on_one_rank_and_on_four() -> None:
    one = towers_memory(config(*BILLION))
    four = towers_memory(config(*BILLION, backend="fsdp", num_workers=4, offload={"optimizer": True}))
    assert one is not None
    assert four is not None
    assert 0.8e9 < one.parameters < 1.2e9
    assert four.rank == pytest.approx(one.rank / 4, abs=4)
    assert four.host == pytest.approx(12 * one.parameters / 4, abs=4)
    printed = str(plan(config(*BILLION), gpus=0))
    assert re.search(r"a learner rank +1\d\.\d GB without activations", printed)
    assert re.search(r"the process that acts +\d\.\d GB in all", printed)
