"""GR00T in LeRobot's layout: what is not read is named, and steps that are not known are refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import groot_checkpoints as small
import numpy as np
import pytest

from rlinf.models.loading import PolicyError
from rlinf.models.vla.published.groot_lerobot import read_lerobot_groot
from rlinf.models.vla.published.groot_unread import unread_of


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    small.write_checkpoint("groot_lerobot", tmp_path)
    return tmp_path


def rewritten(file: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    content = json.loads(file.read_text())
    change(content)
    file.write_text(json.dumps(content))


def step_of(content: dict[str, Any], name: str) -> dict[str, Any]:
    return next(step for step in content["steps"] if step["registry_name"] == name)


def test_what_is_not_read_is_named(folder: Path) -> None:
    unread = unread_of(read_lerobot_groot(str(folder), None))
    assert not [part.name for part in unread if part.matters]
    assert {"config.json: lora_rank", "config.json: optimizer_lr"} <= {part.name for part in unread}
    rewritten(folder / "config.json", lambda content: content.update(attention_sinks=4))

    def sharpen(content: dict[str, Any]) -> None:
        step_of(content, "groot_n1_7_vlm_encode_v1")["config"]["sharpen"] = True

    rewritten(folder / "policy_preprocessor.json", sharpen)
    found = [part.name for part in unread_of(read_lerobot_groot(str(folder), None)) if part.matters]
    assert found == ["config.json: attention_sinks", "groot_n1_7_vlm_encode_v1.sharpen"]


def test_states_and_actions_are_scaled_by_the_bounds_of_the_data_set(folder: Path) -> None:
    checkpoint = read_lerobot_groot(str(folder), None)
    known = small.dataset_statistics()
    for name, leaf in (("state", "observation.state"), ("action", "action")):
        for end, kind in zip(checkpoint.ends(name), ("min", "max"), strict=True):
            assert np.allclose(end, known[leaf][kind])
    assert checkpoint.cameras == ["observation.images.front", "observation.images.wrist"]
    assert (checkpoint.decoded, checkpoint.carried_out) == (small.HORIZON, small.DECODED)


def test_a_gripper_is_turned_if_that_is_configured(folder: Path) -> None:
    assert not read_lerobot_groot(str(folder), None).turns_gripper
    rewritten(folder / "config.json", lambda content: content.update(action_decode_transform="libero"))
    assert read_lerobot_groot(str(folder), None).turns_gripper


def test_what_would_act_otherwise_is_refused(folder: Path) -> None:
    def relative(content: dict[str, Any]) -> None:
        content["steps"].insert(1, {"registry_name": "relative_actions_processor", "config": {}})

    rewritten(folder / "policy_preprocessor.json", relative)
    with pytest.raises(PolicyError, match="step relative_actions_processor is not known"):
        read_lerobot_groot(str(folder), None)
    (folder / "base" / "config.json").write_text(json.dumps({"model_type": "gr00t_n1_5"}))
    with pytest.raises(PolicyError, match="model_type 'gr00t_n1_5'"):
        read_lerobot_groot(str(folder), None)
