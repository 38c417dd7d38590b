"""The memory plan of policies with towers: its counts are those of the models, and it names what does not fit."""

from __future__ import annotations

import re
from typing import Any

import pytest

from rlinf.config.experiment import Config
from rlinf.config.loading import load_mapping
from rlinf.planning import room
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


# An architecture given by its type alone is that of the published model.
PI0 = {"name": "flow", "flow": {"pi0": {"architecture": {"model_type": "pi0"}}}}
WHOLE_QWEN = {"name": "vla", "vla": {"language": {"architecture": {"model_type": "qwen2"}}}}
DINO = {"name": "vla", "vla": {"vision": {"architecture": {"model_type": "dinov2", "hidden_size": 24}}}}


def of_policy(policy: dict[str, Any], **others: Any) -> Config:
    env = {"id": "rlinf_envs:rlinf/Tabletop-v0"}
    return load_mapping({"env": env, "policy": policy, "algorithm": {"adv_type": "grpo"}, **others}, source="test")


@pytest.mark.parametrize(
    ("policy", "least", "key"),
    [
        (PI0, 3_400_000_000, r"policy\.flow\.pi0\.architecture.*vlm_config\.text_config and dit_config"),
        (WHOLE_QWEN, 8_000_000_000, r"policy\.vla\.language\.architecture.*num_hidden_layers"),
    ],
)
def test_a_model_that_the_machine_cannot_hold_is_refused(
    policy: dict[str, Any], least: int, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "memory_bytes", lambda: 32 << 30)
    monkeypatch.setattr(room, "gpu_count", lambda: 0)
    memory = towers_memory(of_policy(policy))
    assert memory is not None
    assert memory.parameters > least
    with pytest.raises(room.TooLargeError, match=rf"{key}") as raised:
        room.require_room(of_policy(policy))
    assert f"{memory.parameters:,} parameters" in str(raised.value)
    room.require_room(of_policy(policy, cluster={"gpu_memory_gb": 80}))
    monkeypatch.setattr(room, "memory_bytes", lambda: 1 << 40)
    room.require_room(of_policy(policy))


def test_a_tower_without_a_formula_is_counted_as_it_is_made() -> None:
    from rlinf.models.vla.backbones import random_tower, rebuilt

    wanted = sum(each.numel() for each in random_tower(rebuilt(DINO["vla"]["vision"]["architecture"])).parameters())
    memory = towers_memory(of_policy(DINO))
    assert memory is not None
    assert memory.parameters == wanted
    assert f"{wanted:,}" in str(plan(of_policy(DINO), gpus=0))


@pytest.mark.parametrize("family", ["llama", "gpt2", "mamba"])
def test_a_text_model_by_its_type_alone_is_counted(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sections = {"env": {"id": "rlinf_envs:rlinf/Arithmetic-v0"}, "policy": {"architecture": {"model_type": family}}}
    text = load_mapping(sections, source="test")
    assert re.search(r"parameters +\d[\d,]+", str(plan(text, gpus=0)))
    monkeypatch.setattr(room, "memory_bytes", lambda: 100 << 20)
    monkeypatch.setattr(room, "gpu_count", lambda: 0)
    with pytest.raises(room.TooLargeError, match=r"policy\.architecture: the model has [\d,]+ parameters"):
        room.require_room(text)
