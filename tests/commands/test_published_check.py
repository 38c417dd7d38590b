"""`rlinf check` names what of a published checkpoint is not read, and what acts otherwise."""

from __future__ import annotations

import json
from pathlib import Path

import groot_checkpoints
import openvla_checkpoints
import published_checkpoints as small
import pytest

from rlinf.commands.published_check import published_findings
from rlinf.config import Config, load


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
    said = "\n".join(map(str, found))
    for part in ("attention_sinks is not read", "3 of 5 actions, and here 4", "in 4 steps, and here in 8"):
        assert part in said


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
    said = "\n".join(map(str, found))
    assert "8 actions" in said
    assert "center_crop: 0.9" in said
    (finding,) = published_findings(openvla(tmp_path / "oft", "policy.vla.checkpoint.decoding=sequential"), [])
    assert finding.serious
