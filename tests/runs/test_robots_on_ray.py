"""Recorded episodes and flows on Ray: the weights of the same run in one process."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

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
