"""OpenVLA and OpenVLA-OFT act as their original code does: golden actions, and what must not be otherwise.

`tests/support/openvla_original.py` writes the golden file, with the original code.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import openvla_checkpoints as small
import pytest
import torch
from checkpoint_folders import written_folders
from decisions import decide
from openvla_policies import FAR, acted, build, error, error_of_flip, golden, leaves_of, parts_of, tolerance
from resumed_runs import continued_run

from rlinf.commands.export import main as export
from rlinf.data.inputs import named_inputs
from rlinf.data.spaces import SpaceError
from rlinf.models.loading import PolicyError
from rlinf.models.vla.build import load_vla
from rlinf.models.vla.published.openvla_checkpoint import OpenVlaCheckpoint
from rlinf.models.vla.published.openvla_policy import PROMPT

Folders = Callable[[str], Path]
FLIPS = [(case, part) for case in small.CASES for part in parts_of(case)]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    return written_folders(tmp_path_factory, small.write_checkpoint)


@pytest.mark.parametrize("case", small.CASES)
def test_the_same_observation_gives_the_originals_action(case: str, folders: Folders) -> None:
    policy = build(case, folders(case))
    prompts = [PROMPT.replace("{instruction}", task.lower()) for task in small.TASKS]
    assert [policy.instructions.tokenizer(prompt)["input_ids"] for prompt in prompts] == golden(case)["ids"]
    assert error(case, policy) <= tolerance(case)


@pytest.mark.slow
@pytest.mark.parametrize(("case", "part"), FLIPS)
def test_a_part_that_is_otherwise_breaks_the_parity(case: str, part: str, folders: Folders) -> None:
    """With another convention actions are far from the original's: the golden observations exercise each."""
    assert error_of_flip(case, part, folders(case)) > FAR


@pytest.mark.parametrize("case", ["openvla", "openvla_oft_film", "openvla_oft_diffusion"])
def test_a_row_acts_alike_next_to_a_longer_instruction(case: str, folders: Folders) -> None:
    policy = build(case, folders(case))
    leaves = leaves_of()
    both, _ = policy.step(leaves, torch.zeros(2, 0), None)
    alone, _ = policy.step({name: leaf[1:] for name, leaf in leaves.items()}, torch.zeros(1, 0), None)
    assert np.abs(policy.env_actions(alone.numpy()) - policy.env_actions(both.numpy())[1:]).max() <= 1e-5


@pytest.mark.parametrize("case", ["openvla_libero", "openvla_oft", "openvla_oft_tokens", "openvla_oft_diffusion"])
def test_actions_become_the_networks_and_back(case: str, folders: Folders) -> None:
    policy = build(case, folders(case), statistics="bounds")
    chunk = small.HORIZON if small.CASES[case].parallel else 1
    draw = np.random.default_rng(0)
    actions = draw.uniform(-0.1, 0.1, (2, chunk, small.ACTION))
    actions[..., -1] = draw.choice([-1.0, 1.0], (2, chunk))
    given = actions if chunk > 1 else actions[:, 0]
    again = policy.env_actions(policy.own_actions(given)).reshape(actions.shape)
    bin_width = 0.0 if small.CASES[case].continuous else 0.02
    assert np.abs(again - actions).max() <= bin_width + 1e-5


@pytest.mark.parametrize("case", ["openvla_libero", "openvla_oft", "openvla_oft_tokens", "openvla_oft_diffusion"])
def test_acting_is_evaluating_and_every_part_has_a_gradient(case: str, folders: Folders) -> None:
    policy = build(case, folders(case), value_head=True, temperature=1.6)
    leaves = leaves_of()
    draw = torch.randn if policy.noise_kind == "normal" else torch.rand
    noise = draw(2, policy.noise_size, generator=torch.Generator().manual_seed(0))
    actions, _, output = policy.decide(leaves, torch.zeros(2, 0), noise)
    chunk = policy.granularity.actions
    rows = {name: leaf[:, None] for name, leaf in leaves.items()}
    rows |= {"executed": torch.ones(2, 1, chunk, dtype=torch.bool)} if chunk > 1 else {}
    mask = torch.ones(2, chunk * small.ACTION, dtype=torch.bool)
    again = policy.evaluate(named_inputs(rows), actions[:, None], mask)
    assert again.logprobs.shape == mask.shape
    assert float((again.logprobs.detach() - output.logprobs).abs().max()) <= 1e-4
    assert again.values.detach().flatten()[0] == pytest.approx(float(output.values[0, 0]), abs=1e-5)
    (again.logprobs.sum() + again.values.sum() + again.entropy.sum()).backward()
    moved = {name for name, part in policy.named_parameters() if part.grad is not None and part.grad.abs().sum() > 0}
    still = {name for name, _ in policy.named_parameters()} - moved
    assert still == set()


@pytest.mark.slow
def test_layers_that_are_computed_again_have_the_same_gradient(folders: Folders) -> None:
    gradients = []
    for again in (False, True):
        policy = build("openvla", folders("openvla"))
        policy.network.language_model.model.recompute = again
        logits = policy.read(leaves_of())[0].logits(torch.zeros(2, small.ACTION, dtype=torch.int64))
        logits.square().sum().backward()
        gradients.append(policy.network.projector.fc1.weight.grad)
    assert float(gradients[0].abs().max()) > 0
    assert torch.allclose(gradients[0], gradients[1], rtol=1e-4, atol=1e-5)


def test_tokens_that_follow_depend_on_those_before_them(folders: Folders) -> None:
    """The log-probability of each token is its own softmax, given the tokens before: recomputed one by one."""
    policy = build("openvla", folders("openvla"))
    leaves = leaves_of()
    actions, output, _ = decide(policy, leaves, seed=0)
    with torch.no_grad():
        prompt = policy.read(leaves)[0].prompt
        for number in range(small.ACTION):
            hidden = prompt.last
            if number:
                hidden = policy.network.follow(prompt, actions[:, :number])[0][:, -1:]
            logits = policy.network.logits(hidden)[:, 0]
            expected = logits.log_softmax(-1).gather(-1, actions[:, number : number + 1])[:, 0]
            assert float((output.logprobs[:, number] - expected).abs().max()) <= 1e-5
            entropy = -(logits.softmax(-1) * logits.log_softmax(-1)).sum(-1)
            assert float((output.entropy[:, number] - entropy).abs().max()) <= 1e-4
    other = actions.clone()
    other[:, 0] = (other[:, 0] + 128) % 256
    with torch.no_grad():
        moved = policy.head.log_prob(policy.read(leaves)[0], other)
    assert float((moved[:, 1:] - output.logprobs[:, 1:]).abs().max()) > 0.01


def test_drawn_tokens_follow_the_temperature(folders: Folders) -> None:
    cold = build("openvla_oft_tokens", folders("openvla_oft_tokens"), temperature=0.01)
    greedy, _, _ = decide(cold, leaves_of())
    drawn, _, _ = decide(cold, leaves_of(), seed=3)
    assert float((greedy == drawn).float().mean()) > 0.9
    warm = build("openvla_oft_tokens", folders("openvla_oft_tokens"), temperature=4.0)
    drawn, output, _ = decide(warm, leaves_of(), seed=3)
    assert float((greedy == drawn).float().mean()) < 0.5
    assert float(output.entropy.mean()) > 2.0


def test_noise_around_numbers_has_its_density(folders: Folders) -> None:
    """Laplace: mean absolute distance is the scale, and minus the mean log-density is the entropy."""
    policy = build("openvla_oft", folders("openvla_oft"), noise_level=0.2)
    head, means = policy.head, torch.zeros(4000, policy.head.count)
    numbers = head.sample(means, torch.rand(means.shape, generator=torch.Generator().manual_seed(0)))
    assert float(numbers.abs().mean()) == pytest.approx(0.2, rel=0.02)
    assert float(-head.log_prob(means, numbers).mean()) == pytest.approx(float(head.entropy(means).mean()), abs=0.02)


def test_a_chunk_may_be_cut_short_and_no_longer(folders: Folders) -> None:
    whole, cut = (acted(build("openvla_oft", folders("openvla_oft"), num_action_chunks=count)) for count in (8, 3))
    assert np.array_equal(whole[:, :3], cut)
    with pytest.raises(SpaceError, match="num_action_chunks is 9"):
        build("openvla_oft", folders("openvla_oft"), num_action_chunks=9)
    with pytest.raises(SpaceError, match="decides on one action"):
        build("openvla", folders("openvla"), num_action_chunks=2)


def test_cameras_and_data_sets_are_named(folders: Folders) -> None:
    with pytest.raises(SpaceError, match=r"policy\.vla\.cameras.*front, wrist"):
        build("openvla_oft", folders("openvla_oft"), cameras=())
    with pytest.raises(PolicyError, match=r"statistics_key.*bridge_orig, libero_object_no_noops"):
        build("openvla", folders("openvla"), statistics_key="libero_goal")
    found, _ = OpenVlaCheckpoint.read(str(folders("openvla"))).statistics_of("libero_object")
    assert found == small.KEY


@pytest.mark.slow
@pytest.mark.parametrize("case", ["openvla_libero", "openvla_oft_film"])
def test_an_export_acts_alike_and_is_written_in_the_originals_layout(
    case: str, folders: Folders, tmp_path: Path
) -> None:
    policy = build(case, folders(case))
    policy.save_pretrained(str(tmp_path / "own"))
    again: Any = load_vla(str(tmp_path / "own"))
    assert error(case, again) <= tolerance(case)
    again.write_published(tmp_path / "openvla")
    assert error(case, build(case, tmp_path / "openvla")) <= tolerance(case)
    source, written = folders(case), tmp_path / "openvla"
    assert {file.name for file in source.iterdir()} == {file.name for file in written.iterdir()}
    assert OpenVlaCheckpoint.read(str(source)) == OpenVlaCheckpoint.read(str(written))


@pytest.mark.slow
@pytest.mark.timeout(1900)
def test_the_original_code_loads_exports_and_acts_alike(folders: Folders, tmp_path: Path) -> None:
    """With `RLINF_OPENVLA_PYTHON`, an interpreter, and `RLINF_OPENVLA_SOURCES`: see `openvla_original.py`."""
    interpreter, sources = (os.environ.get(f"RLINF_OPENVLA_{name}") for name in ("PYTHON", "SOURCES"))
    if interpreter is None or sources is None:
        pytest.skip("RLINF_OPENVLA_PYTHON and RLINF_OPENVLA_SOURCES name no interpreter with the original code")
    made = {}
    for case in small.CASES:
        policy = build(case, folders(case))
        with torch.no_grad():
            for weight in policy.network.parameters():
                weight.mul_(1.05)
        policy.write_published(tmp_path / case)
        made[case] = acted(policy)
        assert error(case, policy) > FAR
    found = small.acted_by_original(interpreter, sources, {case: tmp_path / case for case in made})
    for case, ours in made.items():
        assert np.abs(ours - np.array(found[case]["actions"])).max() <= tolerance(case), case


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("case", ["openvla", "openvla_oft", "openvla_oft_tokens", "openvla_oft_diffusion"])
def test_a_run_imitates_learns_exports_and_goes_on_exactly(case: str, tmp_path: Path) -> None:
    folder = tmp_path / case
    small.write_checkpoint(case, folder)
    small.fit_checkpoint(folder, state=2, action=2)
    chunk = 4 if small.CASES[case].parallel else 1
    critic = case == "openvla"
    chosen = [
        "policy.name=vla",
        f"policy.vla={{statistics_key: {small.KEY}, checkpoint: {{path: {folder}, horizon: 4, statistics: bounds}}}}",
        f"policy.vla.checkpoint.decoding={'parallel' if small.CASES[case].parallel else 'auto'}",
        *(["policy.vla.checkpoint.diffusion_steps=3"] if small.CASES[case].diffusion else []),
        f"env={{id: rlinf_envs:rlinf/Tabletop-v0, num_envs: 2, num_action_chunks: {chunk}}}",
        "env.kwargs={bodies: 1, max_steps: 8, image_size: 32, reward_mode: dense}",
        "sft={steps: 2, demonstrations: 2, batch_size: 4}",
        "evaluation.size=2",
        "cluster.backend=local",
        "logging={progress: none, tensorboard: false}",
        "checkpoint.every=1",
        "algorithm.logprob_type=token_level",
        *(["policy.value_head=true", "rollout.num_steps=2"] if critic else ["rollout.batch_size=2"]),
        "algorithm={adv_type: gae, loss_type: actor_critic, update_epochs: 1, num_minibatches: 1}"
        if critic
        else "algorithm={adv_type: grpo, group_size: 2, update_epochs: 1, num_minibatches: 1}",
    ]
    file = tmp_path / "run.yaml"
    file.write_text("run: {name: openvla}\n")

    cut = continued_run(str(file), chosen, tmp_path)
    assert export([str(cut), str(tmp_path / "out"), "--layout", "openvla"]) == 0
    before = OpenVlaCheckpoint.read(str(folder)).weights()
    after = OpenVlaCheckpoint.read(str(tmp_path / "out" / "openvla")).weights()
    moved = {name for name in before if not before[name].equal(after[name])}
    assert any("fused_featurizer.blocks.0" in name for name in moved)
    assert any("layers.1.self_attn.q_proj" in name for name in moved)
