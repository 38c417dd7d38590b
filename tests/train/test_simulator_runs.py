"""Whole runs of simulators through the common loop: they finish, and a resumed one is the one that went straight on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rlinf.config import load
from rlinf.train.run import run

_SMALL = {
    "ppo": "env: {id: CartPole-v1, num_envs: 4}\nrollout: {num_steps: 32}\n"
    "algorithm: {adv_type: gae, loss_type: actor_critic, update_epochs: 2, num_minibatches: 2}\n",
    "ppo_normalised": "env: {id: Pendulum-v1, num_envs: 4, normalize_observations: true, normalize_rewards: true}\n"
    "rollout: {num_steps: 32}\n"
    "algorithm: {adv_type: gae, loss_type: actor_critic, gamma: 0.9, update_epochs: 2, num_minibatches: 2}\n",
    "grpo": "env: {id: CartPole-v1, num_envs: 4}\nrollout: {batch_size: 2}\n"
    "algorithm: {adv_type: grpo, group_size: 4, update_epochs: 2, num_minibatches: 2}\n",
    "sac": "env: {id: Pendulum-v1, num_envs: 2}\nrollout: {num_steps: 16}\n"
    "algorithm: {loss_type: sac, gamma: 0.99, replay_start: 32, replay_batch_size: 16, replay_capacity: 1000}\n",
}


def summary(folder: Path, kind: str, steps: int) -> dict:
    recipe = folder.parent / f"{kind}.yaml"
    recipe.write_text(_SMALL[kind] + "policy: {name: actor_critic, hidden_sizes: [16]}\n")
    overrides = [
        f"run.dir={folder}",
        f"run.max_steps={steps}",
        "run.seed=5",
        "cluster.backend=local",
        "logging.progress=none",
        "logging.tensorboard=false",
        "learner.optimizer.lr=0.001",
        "checkpoint.every=2",
        "evaluation.size=4",
    ]
    run(load(recipe, overrides))
    return json.loads((folder / "summary.json").read_text())


@pytest.mark.parametrize("kind", sorted(_SMALL))
def test_a_resumed_run_ends_with_the_same_weights(tmp_path: Path, kind: str) -> None:
    straight = summary(tmp_path / "straight", kind, 4)
    summary(tmp_path / "resumed", kind, 2)
    resumed = summary(tmp_path / "resumed", kind, 4)
    assert straight["params_sha256"] == resumed["params_sha256"]
    assert straight["metrics"]["eval/return"] == resumed["metrics"]["eval/return"]
    assert straight["initial_metrics"]["eval/return/n"] == 4
