"""Folders of GR00T: what is not read is named, and what would act otherwise is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import groot_checkpoints as small
import numpy as np
import pytest
from groot_policies import build, read

from rlinf.models.loading import PolicyError
from rlinf.models.vla.published.groot_checkpoint import GrootCheckpoint
from rlinf.models.vla.published.groot_unread import unread_of
from rlinf.models.vla.published.reading import read_flow_checkpoint
from rlinf.schema.policy import PublishedConfig


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    small.write_checkpoint("groot", tmp_path)
    return tmp_path


def rewritten(file: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    content = json.loads(file.read_text())
    change(content)
    file.write_text(json.dumps(content))


def test_what_is_not_read_is_named(folder: Path) -> None:
    checkpoint = read("groot", folder)
    unread = unread_of(checkpoint)
    assert not [part.name for part in unread if part.matters]
    names = {part.name for part in unread}
    for name in (
        "config.json: attn_dropout",
        "config.json: hidden_size",
        "processor_config.json: state_dropout_prob",
        "processor_config.json, statistics.json: another_arm",
        "tensor backbone.model.model.language_model.norm.weight",
    ):
        assert name in names
    modalities = dict(checkpoint.processor["modality_configs"]["libero_sim"])
    modalities["state"] = {**modalities["state"], "sin_cos_embedding_keys": ["arm"]}
    changed = replace(
        checkpoint,
        config={**checkpoint.config, "attention_sinks": 4},
        processor={**checkpoint.processor, "sharpen": True, "modality_configs": {"libero_sim": modalities}},
    )
    assert [part.name for part in unread_of(changed) if part.matters] == [
        "config.json: attention_sinks",
        "processor_config.json: sharpen",
        "processor_config.json: state.sin_cos_embedding_keys",
    ]


@pytest.mark.parametrize(
    ("file", "change", "named"),
    [
        ("config.json", lambda content: content.update(model_type="Gr00tN1d6"), "model_type 'Gr00tN1d6'"),
        ("config.json", lambda content: content.pop("action_horizon"), "has no action_horizon"),
        ("config.json", lambda content: content.update(state_history_length=2), "state_history_length: 2"),
        ("config.json", lambda content: content.update(select_layer=2), "select_layer: 2 is not above the 2"),
        (
            "config.json",
            lambda content: content["diffusion_model_cfg"].pop("positional_embeddings"),
            "diffusion_model_cfg.positional_embeddings: None, which",
        ),
        (
            "config.json",
            lambda content: content["diffusion_model_cfg"].update(interleave_self_attention=False),
            "needs diffusion_model_cfg.interleave_self_attention",
        ),
        ("embodiment_id.json", lambda content: content.pop("libero_sim"), "has no libero_sim, but another_arm"),
        (
            "statistics.json",
            lambda content: content["libero_sim"]["state"].pop("arm"),
            "state.arm of libero_sim lacks mean, q01, q99",
        ),
    ],
)
def test_what_would_act_otherwise_is_refused(folder: Path, file: str, change: Any, named: str) -> None:
    rewritten(folder / file, change)
    with pytest.raises(PolicyError, match=named):
        GrootCheckpoint.read(str(folder))


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"type": "EEF", "format": "XYZ_ROT6D"}, r"poses relative to the state \(action arm: eef\)"),
        ({"state_key": "fingers"}, "action arm of 4 numbers is relative to state fingers, which has 2"),
        ({"state_key": "legs"}, "relative to state legs, which has none"),
    ],
)
def test_actions_relative_to_what_no_state_has_are_refused(tmp_path: Path, changed: dict[str, Any], named: str) -> None:
    small.write_checkpoint("groot_relative", tmp_path)
    assert GrootCheckpoint.read(str(tmp_path), embodiment="joint_arm").references == {"arm": "arm"}

    def other(content: dict[str, Any]) -> None:
        content["processor_kwargs"]["modality_configs"]["joint_arm"]["action"]["action_configs"][0].update(changed)

    rewritten(tmp_path / "processor_config.json", other)
    with pytest.raises(PolicyError, match=named):
        GrootCheckpoint.read(str(tmp_path), embodiment="joint_arm")
    rewritten(tmp_path / "statistics.json", lambda content: content["another_arm"].pop("relative_action"))
    with pytest.raises(PolicyError, match="relative_action lacks arm"):
        GrootCheckpoint.read(str(tmp_path), embodiment="another_arm")


def test_an_embodiment_is_named_where_there_are_several(folder: Path) -> None:
    assert GrootCheckpoint.read(str(folder)).embodiment == "libero_sim"
    with pytest.raises(PolicyError, match=r"embodiment: .* no embodiment kitchen .*libero_sim, another_arm"):
        GrootCheckpoint.read(str(folder), embodiment="kitchen")

    def without_libero(content: dict[str, Any]) -> None:
        modalities = content["processor_kwargs"]["modality_configs"]
        modalities["second_arm"] = modalities.pop("libero_sim")

    rewritten(folder / "processor_config.json", without_libero)
    assert GrootCheckpoint.read(str(folder)).embodiment == "another_arm"
    rewritten(folder / "statistics.json", lambda content: content.update(second_arm=content["libero_sim"]))
    with pytest.raises(PolicyError, match="several embodiments; it has another_arm, second_arm"):
        GrootCheckpoint.read(str(folder))


def test_files_that_are_missing_are_named(folder: Path) -> None:
    (folder / "backbone" / "preprocessor_config.json").unlink()
    with pytest.raises(PolicyError, match=r"checkpoint\.backbone: .*preprocessor_config\.json is missing"):
        GrootCheckpoint.read(str(folder))
    small.write_backbone(folder / "backbone")
    (folder / "processor_config.json").unlink()
    with pytest.raises(PolicyError, match=r"processor_config\.json is missing"):
        GrootCheckpoint.read(str(folder))


@pytest.mark.parametrize("damage", ["missing", "left over", "shape"])
def test_tensors_are_all_there_and_no_others(damage: str, tmp_path: Path) -> None:
    golden = json.loads((small.GOLDEN / "groot.json").read_text())
    shapes, name = dict(golden["tensors"]), "action_head.model.transformer_blocks.1.attn1.to_k.bias"
    if damage == "missing":
        del shapes["action_head.model.transformer_blocks.2.ff.net.2.bias"]
        del shapes["action_head.vlln.bias"]
    elif damage == "shape":
        shapes["backbone.model.model.language_model.layers.1.mlp.up_proj.weight"] = [41, 32]
    else:
        shapes[name.replace("bias", "gain")] = [32]
    small.write_settings("groot", tmp_path)
    small.write_weights(shapes, tmp_path)
    with pytest.raises((PolicyError, RuntimeError), match=r"norm\.bias|to_k\.gain|layers\.1\.mlp\.up_proj"):
        build("groot", tmp_path)


def test_the_kind_of_a_folder_is_read_off_its_configuration(folder: Path, tmp_path: Path) -> None:
    chosen = PublishedConfig(path=str(folder))
    assert isinstance(read_flow_checkpoint(replace(chosen, embodiment="another_arm"), 2), GrootCheckpoint)
    small.write_checkpoint("groot_lerobot", tmp_path / "lerobot")
    lerobot = PublishedConfig(path=str(tmp_path / "lerobot"))
    checkpoint = read_flow_checkpoint(lerobot, 2)
    assert isinstance(checkpoint, GrootCheckpoint)
    assert (checkpoint.embodiment, checkpoint.embodiment_id) == ("spare_arm", 6)
    with pytest.raises(PolicyError, match=r"embodiment: .* no GR00T checkpoint in NVIDIA's layout"):
        read_flow_checkpoint(replace(lerobot, embodiment="libero_sim"), 2)
    (folder / "config.json").write_text(json.dumps({"type": "pi0"}))
    with pytest.raises(PolicyError, match=r"checkpoint\.embodiment: .* is no GR00T checkpoint"):
        read_flow_checkpoint(replace(chosen, embodiment="libero_sim"), 2)


def test_a_new_robot_has_the_statistics_of_its_data_set(folder: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    small.write_dataset(data)
    chosen = PublishedConfig(path=str(folder), statistics=str(data), embodiment="another_arm")
    checkpoint = read_flow_checkpoint(chosen, 3)
    assert isinstance(checkpoint, GrootCheckpoint)
    assert checkpoint.cameras == ["observation.images.front", "observation.images.wrist"]
    assert (checkpoint.decoded, checkpoint.carried_out, checkpoint.embodiment_id) == (3, 3, 7)
    known = json.loads((data / "meta" / "stats.json").read_text())
    low, high = checkpoint.ends("action")
    assert np.allclose(low, known["action"]["q01"])
    assert np.allclose(high, known["action"]["q99"])
    checkpoint.write(tmp_path / "out", {})
    assert GrootCheckpoint.read(str(tmp_path / "out"), embodiment="another_arm") == checkpoint
    assert GrootCheckpoint.read(str(tmp_path / "out")) == GrootCheckpoint.read(str(folder))
    with pytest.raises(PolicyError, match=r"embodiment_id\.json has no new_embodiment"):
        read_flow_checkpoint(replace(chosen, embodiment=None), 3)
    rewritten(data / "meta" / "stats.json", lambda content: content["action"].pop("q99"))
    with pytest.raises(PolicyError, match=r"action\.action of another_arm lacks q99"):
        read_flow_checkpoint(chosen, 3)
    rewritten(data / "meta" / "stats.json", lambda content: content.pop("action"))
    with pytest.raises(PolicyError, match=r"checkpoint\.statistics: .*has no action"):
        read_flow_checkpoint(chosen, 3)
