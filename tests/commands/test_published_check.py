"""`rlinf check` names what of a published checkpoint is not read, and what acts otherwise."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import groot_checkpoints
import openvla_checkpoints
import published_checkpoints as small
import pytest
import torch
from safetensors.torch import load_file, save_file

from rlinf.commands.published_check import published_findings
from rlinf.config import Config, load

FAMILIES: dict[str, Any] = {
    **dict.fromkeys(small.FAMILIES, small),
    **dict.fromkeys(("groot", "groot_relative", "groot_lerobot"), groot_checkpoints),
    **dict.fromkeys(("openvla", "openvla_oft", "openvla_oft_diffusion"), openvla_checkpoints),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    small.write_checkpoint("pi05", tmp_path / "pi05")
    return tmp_path / "pi05"


def config(folder: Path, *overrides: str) -> Config:
    file = folder.parent / "robot.yaml"
    file.write_text("run: {name: robot}\nenv: {id: rlinf_envs:rlinf/Tabletop-v0, num_envs: 8}\npolicy: {name: flow}\n")
    return load(str(file), [f"policy.flow.checkpoint.path={folder}", *overrides])


def test_as_published_nothing_is_found_and_all_that_is_not_read_is_listed(folder: Path) -> None:
    lines: list[str] = []
    assert published_findings(config(folder, "env.num_action_chunks=3"), lines) == []
    listed = "\n".join(lines)
    assert listed.startswith("pi05 checkpoint: ")
    for name in ("optimizer_lr", "dtype", "gemma_expert.lm_head.weight"):
        assert name in listed


def test_another_chunk_other_steps_and_an_unknown_key_are_findings(folder: Path) -> None:
    file = folder / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "attention_sinks": 4}))
    found = published_findings(config(folder, "env.num_action_chunks=4", "policy.flow.checkpoint.steps=8"), [])
    assert not any(finding.serious for finding in found)
    output = "\n".join(map(str, found))
    for part in ("attention_sinks is not read", "3 of 5 actions, and here 4", "in 4 steps, and here in 8"):
        assert part in output


def test_a_folder_without_its_statistics_is_a_serious_finding(folder: Path) -> None:
    file = folder / "policy_postprocessor_step_0_unnormalizer_processor.safetensors"
    file.unlink()
    (finding,) = published_findings(config(folder), [])
    assert finding.serious
    assert file.name in finding.message


def test_groot_as_published_has_no_finding(tmp_path: Path) -> None:
    groot_checkpoints.write_checkpoint("groot", tmp_path / "groot")
    lines: list[str] = []
    chunk = f"env.num_action_chunks={groot_checkpoints.DECODED}"
    assert published_findings(config(tmp_path / "groot", chunk), lines) == []
    listed = "\n".join(lines)
    for part in ("GR00T checkpoint: ", "attn_dropout", "another_arm", "statistics and projections of libero_sim (2)"):
        assert part in listed
    (finding,) = published_findings(
        config(tmp_path / "groot", chunk, "policy.flow.checkpoint.embodiment=kitchen_arm"), []
    )
    assert finding.serious
    assert "no embodiment kitchen_arm" in finding.message


def test_fewer_steps_of_diffusion_are_a_finding(tmp_path: Path) -> None:
    openvla_checkpoints.write_checkpoint("openvla_oft_diffusion", tmp_path / "oft")
    keys = ("env.num_action_chunks=8", "policy.vla.checkpoint.diffusion_steps=10")
    (finding,) = published_findings(openvla(tmp_path / "oft", *keys), [])
    assert "in 50 steps as trained, and here in 10" in finding.message


@pytest.mark.parametrize("case", FAMILIES)
def test_what_is_planted_in_any_file_of_any_family_is_named(case: str, tmp_path: Path) -> None:
    """An unknown key of the settings and of the statistics, a tensor that no part reads, a file of weights."""
    source = tmp_path / case
    FAMILIES[case].write_checkpoint(case, source)
    made = openvla if case in openvla_checkpoints.CASES else config
    embodiment = ["policy.flow.checkpoint.embodiment=joint_arm"] if case == "groot_relative" else []
    chosen = made(source, "env.num_action_chunks=1", *embodiment)
    before = published_findings(chosen, before_lines := [])
    planted = [*plant_settings(source), plant_statistics(source), plant_tensor(source)]
    save_file({"weight": torch.zeros(2)}, source / "more.safetensors")
    lines: list[str] = []
    found = "\n".join([*map(str, published_findings(chosen, lines)), *lines])
    for name in (*planted, "more.safetensors"):
        assert name in found, name
        assert name not in "\n".join([*map(str, before), *before_lines]), name
    assert [finding.serious for finding in published_findings(chosen, [])].count(True) == 1


@pytest.mark.parametrize("case", ["smolvla", "pi0", "groot", "openvla"])
def test_a_checkpoint_without_a_tensor_is_a_serious_finding(case: str, tmp_path: Path) -> None:
    source = tmp_path / case
    FAMILIES[case].write_checkpoint(case, source)
    file = sorted(source.glob("model*.safetensors"))[0]
    tensors = load_file(file)
    del tensors[min(tensors)]
    save_file(tensors, file)
    made = openvla if case in openvla_checkpoints.CASES else config
    found = [finding for finding in published_findings(made(source, "env.num_action_chunks=1"), []) if finding.serious]
    assert "missing" in str(found[0])


def plant_settings(folder: Path) -> list[str]:
    """Add an unknown key to each part of a folder's settings; returns their names."""
    file = folder / "config.json"
    written = json.loads(file.read_text())
    written["planted_key"] = 3
    names = ["planted_key"]
    for part in ("text_config", "diffusion_model_cfg", "vl_self_attention_cfg"):
        if part in written:
            written[part][f"planted_{part}"] = 3
            names.append(f"planted_{part}")
    file.write_text(json.dumps(written))
    for name in ("policy_preprocessor.json", "preprocessor_config.json", "processor_config.json"):
        if not (file := folder / name).exists():
            continue
        written = json.loads(file.read_text())
        if "steps" in written:
            written["steps"][1].setdefault("config", {})["planted_setting"] = 3
        else:
            written.get("processor_kwargs", written)["planted_setting"] = 3
        file.write_text(json.dumps(written))
        names.append("planted_setting")
    return names


def plant_statistics(folder: Path) -> str:
    """Add statistics that nothing is scaled by; returns their name."""
    for file in folder.glob("policy_*.safetensors"):
        save_file({**load_file(file), "observation.planted.mean": torch.zeros(2)}, file)
        return "observation.planted"
    for name in ("statistics.json", "dataset_statistics.json"):
        if (file := folder / name).exists():
            written = json.loads(file.read_text())
            for each in written.values():
                group = each["action"] if "q01" in each["action"] else next(iter(each["action"].values()))
                group["planted_kind"] = group["mean"]
            file.write_text(json.dumps(written))
    return "planted_kind"


def plant_tensor(folder: Path) -> str:
    """Add a tensor; returns its name."""
    file = sorted(folder.glob("model*.safetensors"))[0]
    tensors = load_file(file)
    prefix = next(iter(tensors)).split(".")[0]
    save_file({**tensors, f"{prefix}.planted.weight": torch.zeros(2)}, file, {"format": "pt"})
    return f"{prefix}.planted.weight"


def openvla(folder: Path, *overrides: str) -> Config:
    file = folder.parent / "robot.yaml"
    file.write_text("run: {name: robot}\nenv: {id: rlinf_envs:rlinf/Tabletop-v0, num_envs: 8}\npolicy: {name: vla}\n")
    chosen = f"policy.vla={{statistics_key: libero_object, center_crop: 0.9, checkpoint: {{path: {folder}}}}}"
    return load(str(file), [chosen, *overrides])


def test_openvla_as_published_has_no_finding(tmp_path: Path) -> None:
    openvla_checkpoints.write_checkpoint("openvla_oft", tmp_path / "oft")
    lines: list[str] = []
    assert published_findings(openvla(tmp_path / "oft", "env.num_action_chunks=8"), lines) == []
    listed = "\n".join(lines)
    for part in ("OpenVLA-OFT checkpoint: ", "lm_head", "statistics of libero_object_no_noops; parallel decoding"):
        assert part in listed
    found = published_findings(openvla(tmp_path / "oft", "policy.vla.center_crop=1", "env.num_action_chunks=4"), [])
    assert [finding.serious for finding in found] == [False, False]
    output = "\n".join(map(str, found))
    assert "8 actions" in output
    assert "center_crop: 0.9" in output
    (finding,) = published_findings(openvla(tmp_path / "oft", "policy.vla.checkpoint.decoding=sequential"), [])
    assert finding.serious
