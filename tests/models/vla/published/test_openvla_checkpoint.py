"""Folders of OpenVLA: what is not read is named, and what would act otherwise is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import openvla_checkpoints as small
import pytest
import torch
from openvla_policies import build
from safetensors.torch import load_file, save_file

from rlinf.models.loading import PolicyError
from rlinf.models.vla.published.openvla_checkpoint import OpenVlaCheckpoint


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    small.write_checkpoint("openvla_oft", tmp_path)
    return tmp_path


def _rewritten(folder: Path, **changed: Any) -> None:
    file = folder / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changed}))


def test_what_is_not_read_is_named(folder: Path) -> None:
    checkpoint = OpenVlaCheckpoint.read(str(folder))
    unread = checkpoint.unread()
    assert not [part.name for part in unread if part.matters]
    names = {part.name for part in unread}
    for name in (
        "config.json: hf_llm_id",
        "config.json: text_config.hidden_size",
        "tensor language_model.lm_head.weight",
    ):
        assert name in names
    for name in ("featurizer.blocks.2.attn.qkv.weight", "fused_featurizer.attn_pool.latent", "featurizer.norm.bias"):
        assert f"tensor vision_backbone.{name}" in names
    assert "tensor vision_backbone.featurizer.blocks.1.attn.qkv.weight" not in names
    (folder / "critic--1_checkpoint.pt").write_bytes(b"")
    changed = replace(
        checkpoint,
        config={**checkpoint.config, "attention_sinks": 4},
        preprocessor={**checkpoint.preprocessor, "sharpen": True},
    )
    found = [part.name for part in changed.unread() if part.matters]
    assert found == ["config.json: attention_sinks", "preprocessor_config.json: sharpen", "critic--1_checkpoint.pt"]


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"model_type": "prismatic"}, "prismatic"),
        ({"n_action_bins": 128}, "n_action_bins: 128"),
        ({"text_config": {"vocab_size": 32064, "rope_theta": 5e5}}, "text_config.rope_theta"),
        ({"timm_model_ids": ["vit_large_patch14_clip_336.openai"] * 2}, "clip_336"),
        ({"use_fused_vision_backbone": False}, "input_sizes"),
    ],
)
def test_what_would_act_otherwise_is_refused(folder: Path, changed: dict[str, Any], named: str) -> None:
    _rewritten(folder, **changed)
    with pytest.raises(PolicyError, match=named):
        OpenVlaCheckpoint.read(str(folder))


def test_parts_of_two_action_heads_are_refused(folder: Path) -> None:
    file = folder / "action_head--150000_checkpoint.pt"
    (folder / "action_head--100_checkpoint.pt").write_bytes(file.read_bytes())
    with pytest.raises(PolicyError, match="keep one"):
        OpenVlaCheckpoint.read(str(folder))
    (folder / "action_head--100_checkpoint.pt").rename(folder / "noisy_action_projector--100_checkpoint.pt")
    with pytest.raises(PolicyError, match="diffusion needs an action_head with noise_predictor"):
        OpenVlaCheckpoint.read(str(folder))
    small.write_checkpoint("openvla_oft_diffusion", folder)
    (folder / "noisy_action_projector--100_checkpoint.pt").unlink()
    assert OpenVlaCheckpoint.read(str(folder)).diffusion
    (folder / "noisy_action_projector--150000_checkpoint.pt").unlink()
    with pytest.raises(PolicyError, match="diffusion needs an action_head with noise_predictor"):
        OpenVlaCheckpoint.read(str(folder))


@pytest.mark.parametrize("damage", ["missing", "left over", "shape"])
def test_tensors_are_all_there_and_no_others(folder: Path, damage: str) -> None:
    file = folder / small.SHARD.format(2)
    tensors = load_file(file)
    name = "language_model.model.layers.1.self_attn.k_proj.weight"
    if damage == "missing":
        del tensors[name]
    elif damage == "shape":
        tensors[name] = tensors[name][:, 1:].contiguous()
    else:
        tensors[name.replace("weight", "bias")] = torch.zeros(16)
    save_file(tensors, file)
    with pytest.raises(PolicyError, match="k_proj"):
        build("openvla_oft", folder)


def test_adapters_of_towers_are_added_and_taken_off_again(tmp_path: Path) -> None:
    """A layer has its own weight and half the product of its adapter of rank 32 (alpha 16)."""
    small.write_checkpoint("openvla_oft_film", tmp_path / "in")
    checkpoint = OpenVlaCheckpoint.read(str(tmp_path / "in"))
    assert checkpoint.without_effect().count("vision_backbone.featurizer.blocks.2.scale.weight") == 1
    file = checkpoint.files["vision_backbone"]
    stored = torch.load(tmp_path / "in" / file, weights_only=True)
    layer = "vision_backbone.featurizer.blocks.0.block.attn.qkv"
    down, up = (stored[f"{layer}.lora_{side}.default.weight"] for side in "AB")
    weights = checkpoint.weights()
    merged = weights["vision_backbone.featurizer.blocks.0.attn.qkv.weight"]
    assert torch.allclose(merged, stored[f"{layer}.base_layer.weight"] + 0.5 * up @ down, atol=1e-6)
    newer = {name: tensor + 0.25 for name, tensor in weights.items()}
    checkpoint.write(tmp_path / "out", newer)
    again = OpenVlaCheckpoint.read(str(tmp_path / "out")).weights()
    assert max(float((again[name] - newer[name]).abs().max()) for name in newer) <= 1e-5
    assert torch.equal(torch.load(tmp_path / "out" / file, weights_only=True)[f"{layer}.lora_A.default.weight"], down)


def test_dtypes_stay_those_of_the_checkpoint(folder: Path, tmp_path: Path) -> None:
    for number in (1, 2):
        file = folder / small.SHARD.format(number)
        save_file({name: tensor.bfloat16() for name, tensor in load_file(file).items()}, file)
    checkpoint = OpenVlaCheckpoint.read(str(folder))
    checkpoint.write(tmp_path / "out", checkpoint.weights())
    written = load_file(tmp_path / "out" / small.SHARD.format(2))
    assert {tensor.dtype for tensor in written.values()} == {torch.bfloat16}
    before = load_file(folder / small.SHARD.format(2))
    assert all(torch.equal(before[name], tensor) for name, tensor in written.items())
