"""Simulator runs small enough to be made many times in a test."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rlinf.config import load
from rlinf.train.run import run

SMALL = {
    "ppo": "env: {id: CartPole-v1, num_envs: 4}\nrollout: {num_steps: 32}\n"
    "algorithm: {adv_type: gae, loss_type: actor_critic, update_epochs: 2, num_minibatches: 2}\n",
    "ppo_normalised": "env: {id: Pendulum-v1, num_envs: 4, normalize_observations: true, normalize_rewards: true}\n"
    "rollout: {num_steps: 32}\n"
    "algorithm: {adv_type: gae, loss_type: actor_critic, gamma: 0.9, update_epochs: 2, num_minibatches: 2}\n",
    "grpo": "env: {id: CartPole-v1, num_envs: 4}\nrollout: {batch_size: 2}\n"
    "algorithm: {adv_type: grpo, group_size: 4, update_epochs: 2, num_minibatches: 2}\n",
    "chunks": "env: {id: Pendulum-v1, num_envs: 2, num_action_chunks: 4, max_episode_steps: 42}\n"
    "rollout: {num_steps: 16}\n"
    "algorithm: {adv_type: gae, loss_type: actor_critic, gamma: 0.9, update_epochs: 2, num_minibatches: 2, "
    "reward_type: action_level, logprob_type: token_level, entropy_type: action_level, entropy_bonus: 0.001}\n",
    "chunked_episodes": "env: {id: Pendulum-v1, num_envs: 2, num_action_chunks: 4, max_episode_steps: 42}\n"
    "rollout: {batch_size: 2}\n"
    "algorithm: {adv_type: grpo, group_size: 2, update_epochs: 2, num_minibatches: 2, logprob_type: action_level}\n",
    "ppo_faulty": "env: {id: rlinf_envs:rlinf/FaultyCartPole-v0, num_envs: 4, step_timeout_s: 0.2, "
    "max_failures: 1000}\n"
    "rollout: {num_steps: 64}\n"
    "algorithm: {adv_type: gae, loss_type: actor_critic, gamma: 0.98, gae_lambda: 0.8, update_epochs: 4, "
    "num_minibatches: 2, normalize_advantages: true}\n",
    "sac": "env: {id: Pendulum-v1, num_envs: 2}\nrollout: {num_steps: 16}\n"
    "algorithm: {loss_type: sac, gamma: 0.99, replay_start: 32, replay_batch_size: 16, replay_capacity: 1000}\n",
    "sac_flow": "env: {id: Pendulum-v1, num_envs: 2}\nrollout: {num_steps: 16}\n"
    "algorithm: {loss_type: sac_flow, gamma: 0.99, replay_start: 32, replay_batch_size: 16, replay_capacity: 1000}\n",
    "td3": "env: {id: Pendulum-v1, num_envs: 2}\nrollout: {num_steps: 16}\n"
    "algorithm: {loss_type: td3, replay_start: 32, replay_batch_size: 16, replay_capacity: 1000}\n",
    "ddpg": "env: {id: Pendulum-v1, num_envs: 2}\nrollout: {num_steps: 16}\n"
    "algorithm: {loss_type: ddpg, replay_start: 32, replay_batch_size: 16, replay_capacity: 1000}\n",
    "tqc": "env: {id: Pendulum-v1, num_envs: 2}\nrollout: {num_steps: 16}\n"
    "algorithm: {loss_type: tqc, replay_start: 32, replay_batch_size: 16, replay_capacity: 1000, "
    "dropped_quantiles: 3}\n",
    "crossq": "env: {id: Pendulum-v1, num_envs: 2}\nrollout: {num_steps: 16}\n"
    "algorithm: {loss_type: crossq, replay_start: 32, replay_batch_size: 16, replay_capacity: 1000}\n",
    "dqn": "env: {id: CartPole-v1, num_envs: 2}\nrollout: {num_steps: 16}\n"
    "algorithm: {loss_type: dqn, replay_start: 32, replay_batch_size: 16, replay_capacity: 100, n_step: 3, "
    "priority_exponent: 0.6, huber_delta: 1.0, epsilon_steps: 100, target_update_every: 10}\n",
    "discrete_sac": "env: {id: CartPole-v1, num_envs: 2}\nrollout: {num_steps: 16}\n"
    "algorithm: {loss_type: discrete_sac, replay_start: 32, replay_batch_size: 16, replay_capacity: 1000}\n",
    "sac_hindsight": "env: {id: 'rlinf_envs:rlinf/SparseReach-v0', kwargs: {goals: true, max_steps: 7}, num_envs: 2}\n"
    "rollout: {num_steps: 16}\n"
    "algorithm: {loss_type: sac, hindsight: future, replay_start: 32, replay_batch_size: 16, replay_capacity: 100}\n",
    "dqn_hindsight": "env: {id: 'rlinf_envs:rlinf/BitFlip-v0', num_envs: 2}\nrollout: {num_steps: 16}\n"
    "algorithm: {loss_type: dqn, hindsight: episode, replay_start: 32, replay_batch_size: 16, replay_capacity: 100}\n",
    "sac_memory": "env: {id: Pendulum-v1, num_envs: 2, max_episode_steps: 11}\nrollout: {num_steps: 16}\n"
    "algorithm: {loss_type: sac, gamma: 0.99, replay_start: 32, replay_batch_size: 16, replay_capacity: 100, "
    "sequence_length: 4, burn_in: 2}\n",
    "images": "env: {id: 'image_envs:Gallery-v0', num_envs: 4, normalize_observations: true}\n"
    "rollout: {num_steps: 8}\n"
    "algorithm: {adv_type: gae, loss_type: actor_critic, update_epochs: 2, num_minibatches: 2}\n",
    "images_sac": "env: {id: 'image_envs:Gallery-v0', num_envs: 4}\nrollout: {num_steps: 8}\n"
    "algorithm: {loss_type: discrete_sac, replay_start: 32, replay_batch_size: 16, replay_capacity: 1000}\n",
    "sac_chunks": "env: {id: Pendulum-v1, num_envs: 2, num_action_chunks: 4, max_episode_steps: 42}\n"
    "rollout: {num_steps: 16}\n"
    "algorithm: {loss_type: sac, gamma: 0.9, replay_start: 32, replay_batch_size: 16, replay_capacity: 1000}\n",
}
"""By kind: those of transitions that the run makes itself."""
OFFLINE = {
    "iql": "env: {id: Pendulum-v1, max_episode_steps: 20}\n"
    "algorithm: {loss_type: iql, replay_batch_size: 16, offline_updates: 2}\n",
}
"""Those that need `algorithm.prior_data`."""


_POLICY = {"sac_memory": "policy: {name: actor_critic, hidden_sizes: [16], recurrent: gru, embedding_size: 8}\n"}


def recipe(folder: Path, kind: str) -> Path:
    """The file of one of :data:`SMALL`, next to the run directory ``folder``."""
    file = folder.parent / f"{kind}.yaml"
    file.write_text(
        {**SMALL, **OFFLINE}[kind] + _POLICY.get(kind, "policy: {name: actor_critic, hidden_sizes: [16]}\n")
    )
    return file


def overrides(folder: Path, steps: int) -> list[str]:
    return [
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


def summary(folder: Path, kind: str, steps: int, more: Sequence[str] = ()) -> dict[str, Any]:
    """The result of a run in ``folder``."""
    run(load(recipe(folder, kind), [*overrides(folder, steps), *more]), report=False)
    found: dict[str, Any] = json.loads((folder / "summary.json").read_text())
    return found
