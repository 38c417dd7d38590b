"""Published checkpoints act as their original code does: golden actions of LeRobot 0.6, and what must not be otherwise.

`tests/support/published_original.py make` writes the golden files, with LeRobot.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import published_checkpoints as small
import pytest
import torch
from checkpoint_folders import written_folders
from decisions import decide
from published_policies import PARTS, TOLERANCE, acted, altered, build, error, error_of_flip, leaves_of
from resumed_runs import continued_run

from rlinf.commands.export import main as export
from rlinf.data.inputs import named_inputs
from rlinf.data.spaces import SpaceError
from rlinf.models.loading import PolicyError
from rlinf.models.vla.build import load_vla
from rlinf.models.vla.published.checkpoint import FlowCheckpoint


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    return written_folders(tmp_path_factory, small.write_checkpoint)


@pytest.mark.parametrize("family", small.FAMILIES)
def test_the_same_observation_gives_the_originals_action(family: str, folders: Callable[[str], Path]) -> None:
    assert error(family, build(family, folders(family))) <= TOLERANCE


@pytest.mark.slow
@pytest.mark.parametrize("family", small.FAMILIES)
@pytest.mark.parametrize("part", PARTS)
def test_a_part_that_is_otherwise_breaks_the_parity(family: str, part: str, folders: Callable[[str], Path]) -> None:
    """With another convention actions are far from the original's: the golden observations exercise each."""
    assert error_of_flip(family, part, folders(family)) > 100 * TOLERANCE


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
    actions, output, _ = decide(policy, leaves, seed=0)
    rows = {name: leaf[:, None] for name, leaf in leaves.items()} | {"executed": torch.ones(2, 1, 3, dtype=torch.bool)}
    again = policy.evaluate(named_inputs(rows), actions[:, None], torch.ones(2, 3, dtype=torch.bool))
    assert output.logprobs.shape == again.logprobs.shape == (2, 3)
    assert float((again.logprobs.detach() - output.logprobs).abs().max()) <= 1e-3
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
    checkpoint = FlowCheckpoint.read(str(folders(family)))
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
        FlowCheckpoint.read(str(tmp_path))
    written["steps"][2] = {"registry_name": "to_batch_processor", "config": {"twice": True}}
    file.write_text(json.dumps(written))
    assert "policy_preprocessor.json: to_batch_processor.twice" in {
        part.name for part in FlowCheckpoint.read(str(tmp_path)).unread() if part.matters
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
    theirs, ours = (FlowCheckpoint.read(str(path)) for path in (folders(family), tmp_path / "lerobot"))
    assert theirs == ours


@pytest.mark.slow
@pytest.mark.timeout(1900)
def test_the_original_code_loads_exports_and_acts_alike(folders: Callable[[str], Path], tmp_path: Path) -> None:
    """With `RLINF_LEROBOT_PYTHON`: an interpreter that has LeRobot 0.6."""
    interpreter = os.environ.get("RLINF_LEROBOT_PYTHON")
    if interpreter is None:
        pytest.skip("RLINF_LEROBOT_PYTHON names no interpreter with LeRobot")
    made = []
    for family in small.FAMILIES:
        policy = build(family, folders(family))
        with torch.no_grad():
            for weight in policy.network.parameters():
                weight.mul_(1.01)
        policy.write_published(tmp_path / family)
        made.append(acted(policy, leaves_of(family)))
        assert error(family, policy) > 100 * TOLERANCE
    paths = [str(tmp_path / family) for family in small.FAMILIES]
    for ours, theirs in zip(made, small.acted_by_original(interpreter, paths), strict=True):
        assert np.abs(ours - np.array(theirs)).max() <= TOLERANCE


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("family", ["smolvla", "pi0", "pi05"])
def test_a_run_imitates_learns_exports_and_goes_on_exactly(family: str, tmp_path: Path) -> None:
    original = tmp_path / family
    small.write_checkpoint(family, original)
    small.fit_checkpoint(original, camera="image", state=2, action=2)
    chosen = [
        "policy={name: flow, value_head: true}",
        f"policy.flow.checkpoint={{path: {original}, train: {'expert' if family == 'pi05' else 'all'}, steps: 2}}",
        "env={id: rlinf_envs:rlinf/Tabletop-v0, num_envs: 2, num_action_chunks: 3}",
        "env.kwargs={bodies: 1, max_steps: 8, image_size: 32}",
        "sft={steps: 2, demonstrations: 2, batch_size: 4}",
        "rollout.num_steps=2",
        "algorithm={adv_type: gae, loss_type: actor_critic, update_epochs: 1, num_minibatches: 1}",
        "evaluation.size=2",
        "cluster.backend=local",
        "logging={progress: none, tensorboard: false}",
        "checkpoint.every=1",
    ]
    file = tmp_path / "run.yaml"
    file.write_text("run: {name: published}\n")

    cut = continued_run(str(file), chosen, tmp_path)
    assert export([str(cut), str(tmp_path / "out"), "--layout", "lerobot"]) == 0
    theirs, ours = (FlowCheckpoint.read(str(folder)) for folder in (original, tmp_path / "out" / "lerobot"))
    assert theirs == ours
    before, after = theirs.weights(), ours.weights()
    moved = {name for name in before if not before[name].equal(after[name]) and "lm_head" not in name}
    assert any("expert" in name for name in moved)
    assert any("vision" in name for name in moved) == (family != "pi05")
