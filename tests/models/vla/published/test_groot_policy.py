"""GR00T N1.7 acts as its original code does: golden actions of LeRobot 0.6.1, and what must not be otherwise.

`tests/support/groot_original.py make` writes the golden files, with LeRobot.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import groot_checkpoints as small
import numpy as np
import pytest
import torch
from checkpoint_folders import written_folders
from decisions import decide
from groot_policies import TOLERANCE, acted, build, error, error_of_flip, leaves_of, parts_of, read
from resumed_runs import continued_run

from rlinf.commands.export import main as export
from rlinf.data.inputs import named_inputs
from rlinf.data.spaces import SpaceError
from rlinf.models.vla.build import load_vla
from rlinf.models.vla.continuing import continue_chunk

Folders = Callable[[str], Path]
FLIPS = [(case, part) for case in small.CASES for part in parts_of(case)]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    return written_folders(tmp_path_factory, small.write_checkpoint)


@pytest.mark.parametrize("case", small.CASES)
def test_the_same_observation_gives_the_originals_action(case: str, folders: Folders) -> None:
    assert error(case, build(case, folders(case))) <= TOLERANCE


@pytest.mark.slow
@pytest.mark.parametrize(("case", "part"), FLIPS)
def test_a_part_that_is_otherwise_breaks_the_parity(case: str, part: str, folders: Folders) -> None:
    """With another convention actions are far from the original's: the golden observations exercise each."""
    assert error_of_flip(case, part, folders(case)) > 100 * TOLERANCE


@pytest.mark.parametrize("case", small.CASES)
def test_a_row_acts_alike_next_to_a_longer_instruction(case: str, folders: Folders) -> None:
    policy = build(case, folders(case))
    leaves, state = leaves_of(), torch.zeros(2, 0)
    both, _ = policy.step(leaves, state, None)
    second, _ = policy.step({name: leaf[1:] for name, leaf in leaves.items()}, state[1:], None)
    assert float((both[1:] - second).abs().max()) <= 1e-5
    assert float((both[0] - both[1]).abs().max()) > 0.1


@pytest.mark.parametrize("case", ["groot", "groot_areas"])
def test_actions_become_the_networks_numbers_and_back(case: str, folders: Folders) -> None:
    policy = build(case, folders(case), flip=[0], num_action_chunks=3)
    draw = np.random.default_rng(0)
    actions = draw.uniform(-0.1, 0.1, (2, 3, small.ACTION))
    actions[..., -1] = draw.choice([-1.0, 1.0] if case == "groot" else [0.2, 0.8], (2, 3))
    own = policy.own_actions(actions).reshape(2, policy.head.horizon, policy.head.width)
    assert np.abs(policy.head._bounds.to_env(own[:, :3, : small.ACTION]) - actions).max() <= 1e-5


def test_actions_relative_to_the_state_become_numbers_where_it_is_known(folders: Folders) -> None:
    policy = build("groot_relative", folders("groot_relative"), flip=[0], num_action_chunks=3)
    leaves = leaves_of()
    decisions, _ = policy.step(leaves, torch.zeros(2, 0), None)
    assert decisions.shape == (2, *policy.action_shape)
    assert torch.equal(decisions[:, -small.ACTION : -2], leaves["observation.state"][:, :4])
    own = torch.from_numpy(policy.own_actions(policy.env_actions(decisions.numpy())))
    with torch.no_grad():
        context, _ = policy.read(leaves)
    ends = decisions[:, : policy.noise_size][:, -policy.head.chain.numbers :]
    theirs, ours = (
        part.unflatten(1, (small.HORIZON, small.WIDTH))[:, :3, : small.ACTION]
        for part in (ends.clamp(-1.0, 1.0), policy.head._relative(own, context.reference))
    )
    assert float((theirs - ours).abs().max()) <= 1e-4
    imitated = torch.cat([own, torch.randn(2, policy.imitation_noise)], dim=1)
    again = policy.head.log_prob(context, imitated)
    assert again.shape == (2, 3 * small.ACTION)
    assert float(again.detach().abs().max()) > 0
    with pytest.raises(ValueError, match="relative to the state is not continued"):
        continue_chunk(policy, {name: leaf[:1] for name, leaf in leaves.items()}, np.zeros((1, small.ACTION)), 0)


@pytest.mark.parametrize("case", ["groot", "groot_relative"])
def test_acting_is_evaluating_and_every_part_has_a_gradient(case: str, folders: Folders) -> None:
    policy = build(case, folders(case), value_head=True, num_action_chunks=3)
    leaves = leaves_of()
    actions, output, _ = decide(policy, leaves, seed=0)
    rows = {name: leaf[:, None] for name, leaf in leaves.items()} | {"executed": torch.ones(2, 1, 3, dtype=torch.bool)}
    again = policy.evaluate(named_inputs(rows), actions[:, None], torch.ones(2, 3, dtype=torch.bool))
    assert output.logprobs.shape == again.logprobs.shape == (2, 3)
    assert float((again.logprobs.detach() - output.logprobs).abs().max()) <= 1e-3
    (again.logprobs.sum() + again.values.sum()).backward()
    moved = {name for name, part in policy.named_parameters() if part.grad is not None and part.grad.abs().sum() > 0}
    still = {name for name, _ in policy.named_parameters()} - moved
    # A bias of keys moves no softmax.
    assert {name for name in still if not name.endswith("k_proj.bias")} == set()


def test_chunks_have_the_embodiments_length_at_most(folders: Folders) -> None:
    whole, cut = (acted(build("groot", folders("groot"), num_action_chunks=count)) for count in (small.DECODED, 2))
    assert np.array_equal(whole[:, :2], cut)
    with pytest.raises(SpaceError, match=f"num_action_chunks is {small.DECODED + 1}.*chunks of {small.DECODED}"):
        build("groot", folders("groot"), num_action_chunks=small.DECODED + 1)


def test_only_the_head_is_trained_if_that_is_configured(folders: Folders) -> None:
    policy = build("groot", folders("groot"), train="expert")
    trained = {name.split(".")[1] for name, part in policy.named_parameters() if part.requires_grad}
    assert trained == {"norm", "mixer", "state_encoder", "action_encoder", "action_decoder", "positions", "mover"}


def test_grippers_of_libero_are_one_number(folders: Folders) -> None:
    known = read("groot", folders("groot"))
    settings = dict(known.processor["modality_configs"]["libero_sim"])
    settings["action"] = {**settings["action"], "modality_keys": ["position", "gripper", "rotation"]}
    processor = {**known.processor, "modality_configs": {"libero_sim": settings}}
    policy = build("groot", folders("groot"), checkpoint=replace(known, processor=processor))
    assert set(np.unique(acted(policy)[..., 3])) <= {-1.0, 0.0, 1.0}
    settings["action"] = {**settings["action"], "modality_keys": ["position", "position"]}
    with pytest.raises(SpaceError, match="gripper of one number"):
        build("groot", folders("groot"), checkpoint=replace(known, processor=processor), num_action_chunks=1)


@pytest.mark.slow
@pytest.mark.parametrize("case", small.CASES)
def test_an_export_acts_alike_and_is_written_in_the_originals_layout(
    case: str, folders: Folders, tmp_path: Path
) -> None:
    policy = build(case, folders(case))
    policy.save_pretrained(str(tmp_path / "own"))
    again: Any = load_vla(str(tmp_path / "own"))
    assert error(case, again) <= TOLERANCE
    again.write_published(tmp_path / "groot")
    assert error(case, build(case, tmp_path / "groot")) <= TOLERANCE
    files = {file.name for file in folders(case).iterdir() if file.is_file()}
    assert files == {file.name for file in (tmp_path / "groot").iterdir()}
    assert read(case, folders(case)) == read(case, tmp_path / "groot")


@pytest.mark.slow
@pytest.mark.timeout(1900)
def test_the_original_code_loads_exports_and_acts_alike(folders: Folders, tmp_path: Path) -> None:
    """With `RLINF_GROOT_PYTHON`: an interpreter that has LeRobot 0.6.1 with its extra `groot`."""
    interpreter = os.environ.get("RLINF_GROOT_PYTHON")
    if interpreter is None:
        pytest.skip("RLINF_GROOT_PYTHON names no interpreter with LeRobot and its extra groot")
    made = {}
    for case in small.CASES:
        policy = build(case, folders(case))
        with torch.no_grad():
            for weight in policy.network.parameters():
                weight.mul_(1.02)
        policy.write_published(tmp_path / case)
        made[case] = acted(policy)
        assert error(case, policy) > 100 * TOLERANCE
    found = small.acted_by_original(interpreter, {case: tmp_path / case for case in made})
    for case, ours in made.items():
        assert np.abs(ours - np.array(found[case])).max() <= TOLERANCE, case


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("train", ["all", "expert"])
def test_a_run_imitates_learns_exports_and_goes_on_exactly(train: str, tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"
    case = {"all": "groot_areas", "expert": "groot_relative"}[train]
    small.write_checkpoint(case, folder)
    small.fit_checkpoint(folder, camera="image", state=2, action=2)
    algorithm = {
        "all": [
            "algorithm={adv_type: gae, loss_type: actor_critic, update_epochs: 1, num_minibatches: 1}",
            "policy.value_head=true",
            "rollout.num_steps=2",
        ],
        "expert": [
            "algorithm={adv_type: grpo, group_size: 2, update_epochs: 1, num_minibatches: 1}",
            "policy.lora.rank=2",
            "rollout.batch_size=2",
        ],
    }[train]
    chosen = [
        "policy.name=flow",
        f"policy.flow.checkpoint={{path: {folder}, train: {train}, steps: 2}}",
        f"policy.flow.checkpoint.embodiment={small.CASES[case].embodiment}",
        "env={id: rlinf_envs:rlinf/Tabletop-v0, num_envs: 2, num_action_chunks: 3}",
        "env.kwargs={bodies: 1, max_steps: 8, image_size: 40, reward_mode: dense}",
        "sft={steps: 2, demonstrations: 2, batch_size: 4}",
        *algorithm,
        "evaluation.size=2",
        "cluster.backend=local",
        "logging={progress: none, tensorboard: false}",
        "checkpoint.every=1",
    ]
    file = tmp_path / "run.yaml"
    file.write_text("run: {name: groot}\n")

    cut = continued_run(str(file), chosen, tmp_path)
    assert export([str(cut), str(tmp_path / "out"), "--layout", "groot"]) == 0
    theirs, ours = read(case, folder), read(case, tmp_path / "out" / "groot")
    assert theirs == ours
    before, after = theirs.weights(), ours.weights()
    moved = {name for name in before if not before[name].equal(after[name])}
    assert any("transformer_blocks.1.attn1.to_q" in name for name in moved)
    assert any("language_model.layers.0" in name for name in moved) == (train == "all")
    # Of all embodiments, the weights of one are trained.
    changed = (before["action_head.action_decoder.layer2.b"] != after["action_head.action_decoder.layer2.b"]).any(1)
    assert changed.nonzero().flatten().tolist() == [small.CASES[case].number]
