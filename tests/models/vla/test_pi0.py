"""PI0 with tiny random weights: acting equals evaluating, checkpoints of other names load, exports, whole runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from decisions import decide
from gymnasium import spaces
from resumed_runs import continued_run
from safetensors.torch import load_file, save_file

from rlinf.data.inputs import named_inputs
from rlinf.data.spaces import SpaceError, empty_leaves, write_observation
from rlinf.models.loading import PolicyError
from rlinf.models.tokenizer import train_tokenizer
from rlinf.models.vla import VlaOptions
from rlinf.models.vla.build import build_pi0, load_vla
from rlinf.models.vla.pi0 import load_pi0

TEXT = {
    "model_type": "gemma",
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "intermediate_size": 32,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "vocab_size": 300,
}
VISION = {
    "model_type": "siglip_vision_model",
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "patch_size": 16,
    "image_size": 32,
    "vision_use_head": False,
}
TINY: dict[str, Any] = {
    "model_type": "pi0",
    "vlm_config": {
        "model_type": "paligemma",
        "text_config": TEXT,
        "vision_config": VISION,
        "projection_dim": 32,
        "image_token_id": 299,
    },
    "dit_config": {**TEXT, "hidden_size": 16},
    "chunk_size": 4,
    "max_state_dim": 6,
    "max_action_dim": 5,
}
SPACE = spaces.Dict(
    {
        "image": spaces.Box(0, 255, (24, 24, 3), np.uint8),
        "state": spaces.Box(-1.0, 1.0, (2,), np.float32),
        "instruction": spaces.Text(32),
    }
)
ARM = spaces.Box(np.array([-1.0, 0.0], np.float32), np.array([1.0, 4.0], np.float32))
WORDS = ("touch the red disc", "push it")


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return train_tokenizer(WORDS, vocab_size=280, split_words=True)


def build(tokenizer: Any, **options: Any) -> Any:
    torch.manual_seed(3)
    usual = {"pi0": TINY, "num_action_chunks": 3, "value_head": True, "flow_steps": 3, "logprob_type": "action_level"}
    made = VlaOptions(**{"language": {}, "vision": None, **usual, **options})
    return build_pi0(SPACE, ARM, made, tokenizer).eval()


def observe(rows: int) -> dict[str, torch.Tensor]:
    draw = np.random.default_rng(0)
    leaves = empty_leaves(SPACE, (rows,))
    for row in range(rows):
        entries = {
            "image": draw.integers(0, 256, (24, 24, 3), dtype=np.uint8),
            "state": draw.uniform(-1, 1, 2).astype(np.float32),
            "instruction": WORDS[row % 2],
        }
        write_observation(leaves, row, entries)
    return {name: torch.from_numpy(leaf) for name, leaf in leaves.items()}


def test_acting_is_evaluating_and_every_part_has_a_gradient(tokenizer: Any) -> None:
    """The prefix is read once and kept for all steps, under gradient too."""
    policy = build(tokenizer)
    leaves = observe(4)
    actions, output, _ = decide(policy, leaves, seed=0)
    assert actions.shape == (4, 4 * 4 * 5)
    assert policy.env_actions(actions.numpy()).shape == (4, 3, 2)
    rows = {name: leaf.unflatten(0, (2, 2)) for name, leaf in leaves.items()}
    rows["executed"] = torch.ones(2, 2, 3, dtype=torch.bool)
    again = policy.evaluate(named_inputs(rows), actions.unflatten(0, (2, 2)), torch.ones(2, 6, dtype=torch.bool))
    assert float((again.logprobs.flatten() - output.logprobs.flatten()).abs().max()) <= 1e-5
    with torch.no_grad():
        quiet = policy.evaluate(named_inputs(rows), actions.unflatten(0, (2, 2)), torch.ones(2, 6, dtype=torch.bool))
    assert float((again.logprobs - quiet.logprobs).abs().max()) <= 1e-6
    assert float((again.values - quiet.values).abs().max()) <= 1e-6
    (again.logprobs.sum() + again.values.sum()).backward()
    moved = {name for name, part in policy.named_parameters() if part.grad is not None and part.grad.abs().sum() > 0}
    for part in ("vision", "language_model.layers.0", "dit.layers.1", "action_out_proj", "state_proj", "value_head"):
        assert any(part in name for name in moved), part


def test_only_what_is_carried_out_counts(tokenizer: Any) -> None:
    policy = build(tokenizer)
    leaves = observe(2)
    actions, output, _ = decide(policy, leaves, seed=0)
    other = actions.clone().unflatten(1, (4, 4, 5))
    other[:, -1, 3] += 1.0  # the last point of the action behind the chunk
    other[:, -1, :, 2:] -= 1.0  # and the numbers that no action has
    rows = {name: leaf[:, None] for name, leaf in leaves.items()}
    rows["executed"] = torch.ones(2, 1, 3, dtype=torch.bool)
    mask = torch.ones(2, 3, dtype=torch.bool)
    changed = policy.evaluate(named_inputs(rows), other.flatten(1)[:, None], mask)
    torch.testing.assert_close(changed.logprobs, output.logprobs.view(2, 3), atol=1e-4, rtol=1e-5)
    np.testing.assert_array_equal(policy.env_actions(other.flatten(1).numpy()), policy.env_actions(actions.numpy()))
    own = policy.own_actions(np.array([[[0.5, 1.0], [0.0, 2.0], [-1.0, 4.0]]], np.float32)).reshape(4, 5)
    assert own[2:].tolist() == [[-1.0, 1.0, 0, 0, 0], [-1.0, 1.0, 0, 0, 0]]


def test_a_checkpoint_with_the_names_of_openpi_and_lerobot_loads_whole(tokenizer: Any, tmp_path: Path) -> None:
    policy = build(tokenizer)
    policy.model.save_pretrained(str(tmp_path))
    weights = load_file(tmp_path / "model.safetensors")
    back = (
        ("model.vlm.language_model.embed_tokens", "paligemma_with_expert.paligemma.lm_head"),
        ("model.dit.embed_tokens", "paligemma_with_expert.gemma_expert.lm_head"),
        ("embed_action_time.", ""),
        ("model.vlm", "paligemma_with_expert.paligemma.model"),
        ("model.dit", "paligemma_with_expert.gemma_expert.model"),
    )
    renamed = {}
    for name, tensor in weights.items():
        for ours, theirs in back:
            if name.startswith(ours):
                name = theirs + name.removeprefix(ours)
                break
        renamed[name] = tensor.contiguous()
    assert any(name.startswith("state_proj") for name in renamed)
    save_file(renamed, tmp_path / "model.safetensors", metadata={"format": "pt"})
    model = load_pi0(str(tmp_path))
    for name, tensor in policy.model.state_dict().items():
        assert model.state_dict()[name].equal(tensor), name
    renamed.pop("action_out_proj.weight")
    save_file(renamed, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(PolicyError, match=r"1 weights are missing or left over .action_out_proj.weight"):
        load_pi0(str(tmp_path))


def test_an_export_comes_back(tokenizer: Any, tmp_path: Path) -> None:
    policy = build(tokenizer)
    policy.save_pretrained(str(tmp_path))
    back = load_vla(str(tmp_path)).eval()
    one, two = (decide(made, observe(3), seed=1)[0] for made in (policy, back))
    assert one.equal(two)


def test_what_does_not_fit_is_reported(tokenizer: Any) -> None:
    with pytest.raises(SpaceError, match=r"decides on 4 actions of at most 5 numbers, and here .*chunks is 9"):
        build(tokenizer, num_action_chunks=9)


@pytest.mark.slow
def test_a_run_imitates_learns_and_goes_on_exactly(tmp_path: Path) -> None:
    small = [
        f"policy.flow.pi0.architecture={json.dumps(TINY)}",
        "learner.optimizer.warmup_steps=1",
        "policy.flow.steps=2",
        "policy.tokenizer.vocab_size=280",
        "policy.vla.max_instruction_tokens=32",
        "env.num_envs=2",
        "sft={steps: 2, demonstrations: 2, batch_size: 4}",
        "rollout.batch_size=1",
        "algorithm={group_size: 2, update_epochs: 1, num_minibatches: 1}",
        "evaluation.size=2",
        "cluster.backend=local",
        "logging.progress=none",
        "logging.tensorboard=false",
        "checkpoint.every=1",
    ]

    continued_run("tabletop_flow", small, tmp_path)
