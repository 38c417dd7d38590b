"""Published checkpoints act as their original code does: golden actions of LeRobot 0.6, and what must not be otherwise.

`tests/support/published_original.py make` writes the golden files, with LeRobot.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import published_checkpoints as small
import pytest
import torch
from decisions import decide
from gymnasium import spaces

from rlinf.data.inputs import named_inputs
from rlinf.data.spaces import SpaceError, empty_leaves, write_observation
from rlinf.models.loading import PolicyError, load_tokenizer
from rlinf.models.vla import VlaOptions
from rlinf.models.vla.build import build_published, load_vla
from rlinf.models.vla.published.checkpoint import Checkpoint

TOLERANCE = 1e-5


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    made: dict[str, Path] = {}

    def folder(family: str) -> Path:
        if family not in made:
            made[family] = tmp_path_factory.mktemp(family)
            small.write_checkpoint(family, made[family])
        return made[family]

    return folder


def space_of(family: str) -> tuple[spaces.Dict, spaces.Box]:
    state, action = small.NUMBERS[family]
    observation = {
        "front": spaces.Box(0, 255, small.CAMERA, np.uint8),
        "wrist": spaces.Box(0, 255, small.CAMERA, np.uint8),
        "state": spaces.Box(-np.inf, np.inf, (state,), np.float32),
        "task": spaces.Text(64),
    }
    return spaces.Dict(observation), spaces.Box(-np.inf, np.inf, (action,), np.float32)


def build(family: str, folder: Path, **changed: Any) -> Any:
    checkpoint = changed.pop("checkpoint", None) or Checkpoint.read(str(folder))
    chunk = int(checkpoint.config["chunk_size"])
    given = {"cameras": {}, "flip": [], "train": "all"} | {
        name: changed.pop(name) for name in ("cameras", "flip", "train") if name in changed
    }
    options = VlaOptions(
        language={},
        vision=None,
        published={"checkpoint": checkpoint.to_dict(), **given},
        **{"num_action_chunks": chunk, "logprob_type": "action_level", **changed},
    )
    both = space_of(family)
    return build_published(*both, options, load_tokenizer(str(checkpoint.tokenizer)), checkpoint).eval()


def leaves_of(family: str, change: Callable[[dict[str, Any]], None] | None = None) -> dict[str, torch.Tensor]:
    space = space_of(family)[0]
    leaves = empty_leaves(space, (len(small.TASKS),))
    for row in range(len(small.TASKS)):
        seen = small.observation(family, row)
        if change is not None:
            change(seen)
        write_observation(leaves, row, seen)
    return {name: torch.from_numpy(leaf) for name, leaf in leaves.items()}


def acted(policy: Any, leaves: dict[str, torch.Tensor]) -> np.ndarray:
    """Actions [rows, chunk, numbers], beginning with the noise of the golden files."""
    horizon, width = policy.head.horizon, policy.head.width
    noise = np.stack([small.noise(horizon, width, row) for row in range(len(small.TASKS))])
    with torch.no_grad():
        prefix, _ = policy.read(leaves)
        chains = policy.head.followed(prefix, torch.from_numpy(noise).flatten(1))
    return np.asarray(policy.env_actions(chains.numpy()))


def error(family: str, policy: Any, leaves: dict[str, torch.Tensor] | None = None) -> float:
    golden = json.loads((small.GOLDEN / f"{family}.json").read_text())
    wanted = np.array(golden["actions"])
    made = acted(policy, leaves_of(family) if leaves is None else leaves)
    return float(np.abs(made - wanted[:, : made.shape[1]]).max())


@pytest.mark.parametrize("family", small.FAMILIES)
def test_the_same_observation_gives_the_originals_action(family: str, folders: Callable[[str], Path]) -> None:
    assert error(family, build(family, folders(family))) <= TOLERANCE


def altered(folder: Path, **changed: Any) -> Checkpoint:
    """The checkpoint with other entries in its `config.json`."""
    checkpoint = Checkpoint.read(str(folder))
    return replace(checkpoint, config={**checkpoint.config, **changed})


def other_modes(family: str, **modes: str) -> dict[str, str]:
    usual = {"VISUAL": "IDENTITY", "STATE": "MEAN_STD", "ACTION": "MEAN_STD"}
    if family == "pi05":
        usual |= {"STATE": "QUANTILES", "ACTION": "QUANTILES"}
    return usual | modes


def brightened(seen: dict[str, Any]) -> None:
    seen["wrist"] = np.ascontiguousarray(seen["wrist"][..., ::-1])


def cropped(seen: dict[str, Any]) -> None:
    """The middle of the picture, as large as before."""
    rows, columns = np.linspace(2, 37, 40).astype(int), np.linspace(2, 45, 48).astype(int)
    seen["front"] = np.ascontiguousarray(seen["front"][rows][:, columns])


def shorter(seen: dict[str, Any]) -> None:
    seen["task"] = seen["task"][:-1]


@pytest.mark.slow
@pytest.mark.parametrize("family", small.FAMILIES)
@pytest.mark.parametrize(
    "part",
    ["crop", "padding", "colours", "camera order", "camera absent", "state statistics", "action statistics",
     "action bounds", "gripper sign", "chunk", "steps", "instruction", "prompt"],
)  # fmt: skip
def test_a_part_that_is_otherwise_breaks_the_parity(
    family: str, part: str, folders: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With another convention actions are far from the original's: the golden observations exercise each."""
    folder, seen = folders(family), {"crop": cropped, "colours": brightened, "instruction": shorter}.get(part)
    front, wrist = "observation.images.front", "observation.images.wrist"
    given: dict[str, Any] = {
        "camera order": {"cameras": {front: "wrist", wrist: "front"}},
        "camera absent": {"cameras": {wrist: "none"}},
        "gripper sign": {"flip": [small.NUMBERS[family][1] - 1]},
        "steps": {"flow_steps": 5},
    }.get(part, {})
    modes = {"state statistics": {"STATE": "MIN_MAX"}, "action statistics": {"ACTION": "MIN_MAX"}}.get(part)
    if part == "action bounds":
        modes = {"ACTION": "IDENTITY"}
    if modes is not None:
        given["checkpoint"] = altered(folder, normalization_mapping=other_modes(family, **modes))
    if part == "prompt":
        monkeypatch.setattr("rlinf.models.vla.published.processing._line", lambda text: text)
        monkeypatch.setattr("rlinf.models.vla.published.processing.STATE_BINS", 128)
    policy = build(family, folder, **given)
    if part == "padding":
        policy._place = {"corner": "centre", "centre": "corner"}[policy._place]
    if part == "chunk":
        policy.head.chunk = policy.head._bounds._chunk = 4
        monkeypatch.setattr(policy.head, "to_env", lambda chains: later_actions(policy, chains))
    assert error(family, policy, leaves_of(family, seen)) > 100 * TOLERANCE


def later_actions(policy: Any, chains: np.ndarray) -> np.ndarray:
    """A chunk that begins one action later."""
    head = policy.head
    ends = chains[:, -head.chain.numbers :].reshape(len(chains), head.horizon, head.width)
    return np.asarray(head._bounds.to_env(ends[:, 1:, : head.per_action]))


def test_aloha_s_gripper_is_turned_by_its_own_formula(folders: Callable[[str], Path]) -> None:
    folder = folders("smolvla_aloha")
    plain = build("smolvla_aloha", folder, checkpoint=altered(folder, adapt_to_pi_aloha=False))
    assert error("smolvla_aloha", plain) > 100 * TOLERANCE


@pytest.mark.parametrize("family", small.FAMILIES)
def test_actions_become_the_networks_numbers_and_back(family: str, folders: Callable[[str], Path]) -> None:
    policy = build(family, folders(family), flip=[0], num_action_chunks=3)
    actions = np.random.default_rng(0).normal(0, 0.5, (2, 3, small.NUMBERS[family][1]))
    own = policy.own_actions(actions).reshape(2, policy.head.horizon, policy.head.width)
    assert np.abs(policy.head._bounds.to_env(own[:, :3, : actions.shape[2]]) - actions).max() <= 1e-5


@pytest.mark.parametrize("family", small.FAMILIES)
def test_acting_is_evaluating_and_every_part_has_a_gradient(family: str, folders: Callable[[str], Path]) -> None:
    policy = build(family, folders(family), value_head=True, num_action_chunks=3)
    leaves = leaves_of(family)
    actions, said, _ = decide(policy, leaves, seed=0)
    rows = {name: leaf[:, None] for name, leaf in leaves.items()} | {"executed": torch.ones(2, 1, 3, dtype=torch.bool)}
    again = policy.evaluate(named_inputs(rows), actions[:, None], torch.ones(2, 3, dtype=torch.bool))
    assert said.logprobs.shape == again.logprobs.shape == (2, 3)
    assert float((again.logprobs.detach() - said.logprobs).abs().max()) <= 1e-3
    (again.logprobs.sum() + again.values.sum()).backward()
    moved = {name for name, part in policy.named_parameters() if part.grad is not None and part.grad.abs().sum() > 0}
    for part in ("vision", "projector", "words", "reader.layers.0", "expert.layers.1", "action_in_proj"):
        assert any(part in name for name in moved), part


@pytest.mark.parametrize("family", small.FAMILIES)
def test_greedy_acting_follows_from_the_observation_alone(family: str, folders: Callable[[str], Path]) -> None:
    policy = build(family, folders(family))
    leaves, state = leaves_of(family), torch.zeros(2, 0)
    both, _ = policy.step(leaves, state, None)
    second, _ = policy.step({name: leaf[1:] for name, leaf in leaves.items()}, state[1:], None)
    assert float((both[1:] - second).abs().max()) <= 1e-5
    assert float((both[0] - both[1]).abs().max()) > 0.1
    assert 0.5 < float(both[:, : policy.head.chain.numbers].std()) < 1.5


@pytest.mark.parametrize("family", small.FAMILIES)
def test_what_is_not_read_is_named(family: str, folders: Callable[[str], Path]) -> None:
    checkpoint = Checkpoint.read(str(folders(family)))
    unread = checkpoint.unread()
    assert not [part.name for part in unread if part.matters]
    names = {part.name for part in unread}
    assert "config.json: optimizer_lr" in names
    assert any("lm_head.weight" in name for name in names)
    strange = altered(folders(family), attention_sinks=4)
    assert [part.name for part in strange.unread() if part.matters] == ["config.json: attention_sinks"]


def test_a_step_that_is_not_known_is_refused(folders: Callable[[str], Path], tmp_path: Path) -> None:
    small.write_checkpoint("pi0", tmp_path)
    file = tmp_path / "policy_preprocessor.json"
    written = json.loads(file.read_text())
    written["steps"].insert(2, {"registry_name": "sharpen_processor", "config": {}})
    file.write_text(json.dumps(written))
    with pytest.raises(PolicyError, match="sharpen_processor"):
        Checkpoint.read(str(tmp_path))
    written["steps"][2] = {"registry_name": "to_batch_processor", "config": {"twice": True}}
    file.write_text(json.dumps(written))
    assert "policy_preprocessor.json: to_batch_processor.twice" in {
        part.name for part in Checkpoint.read(str(tmp_path)).unread() if part.matters
    }


@pytest.mark.parametrize("damage", ["missing", "left over", "shape"])
def test_tensors_are_all_there_and_no_others(damage: str, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    small.write_checkpoint("smolvla", tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    name = "model.vlm_with_expert.lm_expert.layers.1.self_attn.k_proj.weight"
    if damage == "missing":
        del tensors[name]
    elif damage == "shape":
        tensors[name] = tensors[name][:, 1:].contiguous()
    else:
        name = "model.vlm_with_expert.lm_expert.layers.1.self_attn.k_proj.bias"
        tensors[name] = torch.zeros(16)
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(PolicyError, match="k_proj"):
        build("smolvla", tmp_path)


def test_a_camera_that_is_not_there_is_named(folders: Callable[[str], Path]) -> None:
    with pytest.raises(SpaceError, match=r"observation\.images\.front.*nothere.*front, wrist"):
        build("pi0", folders("pi0"), cameras={"observation.images.front": "nothere"})


@pytest.mark.parametrize("family", small.FAMILIES)
def test_an_export_acts_alike_and_is_written_in_the_originals_layout(
    family: str, folders: Callable[[str], Path], tmp_path: Path
) -> None:
    policy = build(family, folders(family))
    policy.save_pretrained(str(tmp_path / "own"))
    again = load_vla(str(tmp_path / "own"))
    assert error(family, again) <= TOLERANCE  # type: ignore[arg-type]
    again.write_published(tmp_path / "lerobot")  # type: ignore[attr-defined]
    assert error(family, build(family, tmp_path / "lerobot")) <= TOLERANCE
    theirs, ours = (Checkpoint.read(str(place)) for place in (folders(family), tmp_path / "lerobot"))
    assert theirs == ours


@pytest.mark.slow
@pytest.mark.parametrize("family", small.FAMILIES)
def test_the_original_code_loads_an_export_and_acts_alike(
    family: str, folders: Callable[[str], Path], tmp_path: Path
) -> None:
    """With `RLINF_LEROBOT_PYTHON`: an interpreter that has LeRobot 0.6."""
    interpreter = os.environ.get("RLINF_LEROBOT_PYTHON")
    if interpreter is None:
        pytest.skip("RLINF_LEROBOT_PYTHON names no interpreter with LeRobot")
    policy = build(family, folders(family))
    with torch.no_grad():
        for weight in policy.network.parameters():
            weight.mul_(1.01)
    policy.write_published(tmp_path)
    script = Path(small.__file__).parent / "published_original.py"
    done = subprocess.run(
        [interpreter, str(script), "act", family, str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": str(script.parent), "HF_HUB_OFFLINE": "1"},
    )
    wanted = np.array(json.loads(done.stdout.splitlines()[-1]))
    assert np.abs(acted(policy, leaves_of(family)) - wanted).max() <= TOLERANCE
    assert error(family, policy) > 100 * TOLERANCE
