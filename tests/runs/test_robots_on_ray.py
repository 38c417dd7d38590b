"""Recorded episodes, flows and published policies on Ray: the weights of the same run in one process, or at once."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import groot_checkpoints
import openvla_checkpoints
import pytest
from resumed_runs import continued_run

from rlinf.cli import main
from rlinf.config import load
from rlinf.train.run import run

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("ray_session")]

FLOW = """
env: {id: "rlinf_envs:rlinf/Tabletop-v0", num_envs: 4, num_workers: 2, num_action_chunks: 2,
      kwargs: {image_size: 16, num_states: 4}}
policy:
  name: flow
  vla:
    language: {architecture: {model_type: qwen2, hidden_size: 16, intermediate_size: 32, num_hidden_layers: 1,
                              num_attention_heads: 2, num_key_value_heads: 2}}
    vision: {architecture: {model_type: siglip_vision_model, hidden_size: 16, intermediate_size: 32,
                            num_hidden_layers: 1, num_attention_heads: 2, patch_size: 8, vision_use_head: false}}
sft: {steps: 3, batch_size: 8, dataset: DATA}
rollout: {batch_size: 2}
algorithm: {adv_type: grpo, group_size: 2}
"""
REACH = """
env: {id: "rlinf_envs:rlinf/SparseReach-v0", num_envs: 2}
policy: {name: actor_critic, hidden_sizes: [16]}
rollout: {num_steps: 16}
algorithm: {loss_type: sac, gamma: 0.9, replay_start: 32, replay_batch_size: 16, replay_capacity: 999, prior_data: DATA}
"""
RECIPES = {"sft.dataset and flow": FLOW, "prior_data": REACH}


def weights(file: Path, folder: Path, backend: str) -> str:
    """The checksum of the parameters after three steps."""
    quiet = ["logging.progress=none", "logging.tensorboard=false", "evaluation.size=2"]
    run(load(file, [f"run.dir={folder}", "run.max_steps=3", f"cluster.backend={backend}", *quiet]), report=False)
    found: str = json.loads((folder / "summary.json").read_text())["params_sha256"]
    return found


@pytest.mark.parametrize("kind", RECIPES)
def test_ray_gives_the_weights_of_one_process(kind: str, tmp_path: Path) -> None:
    file, data, written = tmp_path / "recipe.yaml", tmp_path / "data", RECIPES[kind]
    file.write_text(written.replace(", dataset: DATA", "").replace(", prior_data: DATA", ""))
    assert not main(["record", str(file), "--out", str(data), "--episodes", "4", "--to-the-end"])
    file.write_text(written.replace("DATA", str(data)))
    assert weights(file, tmp_path / "ray", "ray") == weights(file, tmp_path / "local", "local")


def groot_of_two_ranks(folder: Path) -> list[str]:
    """GR00T with FSDP, by Flow-SDE."""
    groot_checkpoints.write_checkpoint("groot_areas", folder)
    groot_checkpoints.fit_checkpoint(folder, camera="image", state=2, action=2)
    embodiment = groot_checkpoints.CASES["groot_areas"].embodiment
    return [
        f"policy={{name: flow, flow: {{checkpoint: {{path: {folder}, embodiment: {embodiment}, steps: 2}}}}}}",
        "env={id: rlinf_envs:rlinf/Tabletop-v0, num_envs: 2, num_action_chunks: 3}",
        "env.kwargs={bodies: 1, max_steps: 8, image_size: 40, reward_mode: dense}",
        "learner={backend: fsdp, num_workers: 2}",
    ]


def diffusion_with_adapters(folder: Path) -> list[str]:
    """OpenVLA-OFT with a diffusion head, by DDPO."""
    openvla_checkpoints.write_checkpoint("openvla_oft_diffusion", folder)
    openvla_checkpoints.fit_checkpoint(folder, state=2, action=2)
    checkpoint = f"{{path: {folder}, horizon: 4, statistics: bounds, diffusion_steps: 3}}"
    return [
        f"policy={{name: vla, vla: {{statistics_key: {openvla_checkpoints.KEY}, checkpoint: {checkpoint}}}}}",
        "policy.lora.rank=2",
        "env={id: rlinf_envs:rlinf/Tabletop-v0, num_envs: 2, num_action_chunks: 4}",
        "env.kwargs={bodies: 1, max_steps: 8, image_size: 32, reward_mode: dense}",
    ]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("made", [groot_of_two_ranks, diffusion_with_adapters])
def test_published_policies_imitate_learn_and_go_on_exactly(made: Callable[[Path], list[str]], tmp_path: Path) -> None:
    settings = [
        *made(tmp_path / "checkpoint"),
        "sft={steps: 2, demonstrations: 2, batch_size: 4}",
        "rollout.batch_size=2",
        "algorithm={adv_type: grpo, group_size: 2, update_epochs: 1, num_minibatches: 1}",
        "evaluation.size=2",
        "logging={progress: none, tensorboard: false}",
        "checkpoint.every=1",
    ]
    file = tmp_path / "run.yaml"
    file.write_text("run: {name: published}\n")
    cut = continued_run(str(file), settings, tmp_path)
    steps = [json.loads(line) for line in (cut / "metrics.jsonl").read_text().splitlines()]
    assert [step["step"] for step in steps if step.get("train/grad_norm", 0) > 0] == [1, 2]
    assert [step["step"] for step in steps if step.get("sft/grad_norm", 0) > 0] == [-2, -1]
