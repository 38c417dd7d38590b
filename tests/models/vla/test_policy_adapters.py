"""Low-rank adapters on the towers of a VLA policy: they are trained alone, and merged for acting."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from test_vla_policy import LANGUAGE, WORDS, as_positions, build, observe

from rlinf.config import load
from rlinf.data.inputs import named_inputs
from rlinf.models.adapters import adapt, merged_weights
from rlinf.models.loading import PolicyError
from rlinf.models.tokenizer import train_tokenizer
from rlinf.models.vla import VlaPolicy
from rlinf.train.run import run

pytest.importorskip("peft")
TARGETS = ["q_proj", "v_proj"]


def adapted(**options: Any) -> VlaPolicy:
    policy = build(train_tokenizer(WORDS, vocab_size=300, split_words=True), **options)
    adapt(policy.towers(), rank=2, alpha=4, dropout=0.0, target_modules=TARGETS, seed=1)
    return policy


def logprobs_of(policy: VlaPolicy) -> torch.Tensor:
    tokens = torch.randint(0, 5, (4, 1, 6), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        everywhere = torch.ones(4, 1, dtype=torch.bool)
        return policy.evaluate(named_inputs(as_positions(observe(4))), tokens, everywhere).logprobs


def move(policy: VlaPolicy) -> None:
    """One large step of what is trained."""
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in policy.own_adapters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.3)


def test_adapters_start_as_no_change_and_are_merged_for_acting() -> None:
    plain, policy = build(train_tokenizer(WORDS, vocab_size=300, split_words=True)), adapted()
    assert torch.equal(logprobs_of(plain), logprobs_of(policy))
    assert {name for name, _ in merged_weights(policy)} == plain.state_dict().keys()
    move(policy)
    assert float((logprobs_of(plain) - logprobs_of(policy)).abs().max()) > 0.1
    plain.load_state_dict(dict(policy.weights()))
    torch.testing.assert_close(logprobs_of(plain), logprobs_of(policy), atol=1e-5, rtol=1e-5)


def test_towers_are_frozen_and_everything_else_is_trained() -> None:
    policy = adapted(conditioning="film")
    towers = [parameter for tower in policy.towers() for parameter in tower.named_parameters()]
    assert all(parameter.requires_grad == (".lora_" in name) for name, parameter in towers)
    assert sum(".lora_A" in name for name, _ in towers) == 4  # two layers of one tower each
    inside = {id(parameter) for _, parameter in towers}
    assert all(parameter.requires_grad for parameter in policy.parameters() if id(parameter) not in inside)


def test_the_reference_is_what_was_copied() -> None:
    policy = adapted()
    before, kept = logprobs_of(policy), policy.copied_adapters()
    move(policy)
    now = logprobs_of(policy)
    with policy.reference(kept):
        assert torch.equal(logprobs_of(policy), before)
    assert torch.equal(logprobs_of(policy), now)


def test_a_layer_that_no_tower_has_is_reported() -> None:
    policy = build(train_tokenizer(WORDS, vocab_size=300, split_words=True))
    with pytest.raises(PolicyError, match="the model has no w_proj"):
        adapt(policy.towers(), rank=2, alpha=4, dropout=0.0, target_modules=["w_proj"], seed=1)


@pytest.mark.slow
def test_a_run_trains_adapters_and_exports_the_merged_policy(tmp_path: Path) -> None:
    """From imitation to GRPO, and on from a checkpoint as if it had never stopped."""
    file = tmp_path / "recipe.yaml"
    file.write_text(f"""
env: {{id: "rlinf_envs:rlinf/Tabletop-v0", num_envs: 4, num_action_chunks: 2, kwargs: {{image_size: 16}}}}
policy:
  name: vla
  lora: {{rank: 2, alpha: 4, target_modules: [q_proj, v_proj]}}
  vla: {{language: {{architecture: {json.dumps(LANGUAGE)}}}}}
sft: {{steps: 2, batch_size: 8, demonstrations: 4}}
rollout: {{batch_size: 2}}
algorithm: {{adv_type: grpo, group_size: 2, kl_beta: 0.01}}
""")
    quiet = ["cluster.backend=local", "logging.progress=none", "logging.tensorboard=false", "evaluation.size=2"]
    sums = []
    for name, steps in (("whole", (2,)), ("cut", (1, 2))):
        folder = tmp_path / name
        for step in steps:
            wanted = [f"run.dir={folder}", f"run.max_steps={step}", "checkpoint.every=1", *quiet]
            run(load(file, wanted), report=False)
        sums.append(json.loads((folder / "summary.json").read_text())["params_sha256"])
    assert sums[0] == sums[1]
    exported = VlaPolicy.from_pretrained(str(tmp_path / "whole" / "policy"))
    assert not any(".lora_" in name for name in exported.state_dict())
