"""Stable-Baselines3's algorithms with their defaults, those that are not here, and environments by another name."""

from __future__ import annotations

import re
from collections.abc import Mapping

from rlinf.rollouts.vec_env.registered_by import registering_module

_COMMON: Mapping[str, object] = {"gamma": 0.99, "n_envs": 1}
_ON_POLICY: Mapping[str, object] = {**_COMMON, "ent_coef": 0.0, "vf_coef": 0.5, "max_grad_norm": 0.5}
_OFF_POLICY: Mapping[str, object] = {
    **_COMMON,
    "buffer_size": 1_000_000,
    "learning_starts": 100,
    "batch_size": 256,
    "tau": 0.005,
    "train_freq": 1,
    "gradient_steps": 1,
}
_PPO: Mapping[str, object] = {
    **_ON_POLICY,
    "learning_rate": 3e-4,
    "n_steps": 2048,
    "batch_size": 64,
    "n_epochs": 10,
    "gae_lambda": 0.95,
    "clip_range": 0.2,
    "normalize_advantage": True,
}
DEFAULTS: Mapping[str, Mapping[str, object]] = {
    "ppo": _PPO,
    "ppo_lstm": {**_PPO, "n_steps": 128, "batch_size": 128},
    "maskable_ppo": _PPO,
    "a2c": {
        **_ON_POLICY,
        "learning_rate": 7e-4,
        "n_steps": 5,
        "gae_lambda": 1.0,
        "normalize_advantage": False,
        "use_rms_prop": True,
        "rms_prop_eps": 1e-5,
    },
    "sac": {**_OFF_POLICY, "learning_rate": 3e-4, "ent_coef": "auto"},
    "crossq": {**_OFF_POLICY, "learning_rate": 1e-3, "ent_coef": "auto", "policy_delay": 3},
    "td3": {
        **_OFF_POLICY,
        "learning_rate": 1e-3,
        "policy_delay": 2,
        "target_policy_noise": 0.2,
        "target_noise_clip": 0.5,
    },
    "ddpg": {**_OFF_POLICY, "learning_rate": 1e-3},
    "tqc": {**_OFF_POLICY, "learning_rate": 3e-4, "ent_coef": "auto", "top_quantiles_to_drop_per_net": 2},
    "dqn": {
        **_OFF_POLICY,
        "learning_rate": 1e-4,
        "batch_size": 32,
        "tau": 1.0,
        "train_freq": 4,
        "target_update_interval": 10_000,
        "exploration_fraction": 0.1,
        "exploration_initial_eps": 1.0,
        "exploration_final_eps": 0.05,
        "max_grad_norm": 10.0,
    },
}
"""What Stable-Baselines3 2.9 and sb3-contrib do by default."""

LAYERS: Mapping[str, tuple[list[int], str]] = {
    "ppo": ([64, 64], "tanh"),
    "ppo_lstm": ([64, 64], "tanh"),
    "maskable_ppo": ([64, 64], "tanh"),
    "a2c": ([64, 64], "tanh"),
    "sac": ([256, 256], "relu"),
    "crossq": ([256, 256], "relu"),
    "td3": ([400, 300], "relu"),
    "ddpg": ([400, 300], "relu"),
    "tqc": ([256, 256], "relu"),
    "dqn": ([64, 64], "relu"),
}
"""Hidden layers and activation of an MlpPolicy."""

CLASSES: Mapping[str, str] = {
    "PPO": "ppo",
    "A2C": "a2c",
    "SAC": "sac",
    "TD3": "td3",
    "DQN": "dqn",
    "CrossQ": "crossq",
    "RecurrentPPO": "ppo_lstm",
    "DDPG": "ddpg",
    "QRDQN": "qrdqn",
    "TQC": "tqc",
    "TRPO": "trpo",
    "ARS": "ars",
    "MaskablePPO": "maskable_ppo",
    "HER": "her",
}
MISSING: Mapping[str, tuple[str, str]] = {
    "qrdqn": ("the algorithm QR-DQN", "loss_type: dqn"),
    "trpo": ("the algorithm TRPO", "adv_type: gae with loss_type: actor_critic"),
    "ars": ("the algorithm ARS", "adv_type: gae with loss_type: actor_critic"),
    "her": ("the class HER, of versions before 1.1", "replay_buffer_class=HerReplayBuffer, or algorithm.hindsight"),
}
_OF_THE_ZOO: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"RocketLander-v\d+"), "rocket_lander_gym"),
    (re.compile(r"\w+NoVel-v\d+"), "rl_zoo3"),
    (re.compile(r"A1(Walking|Jumping)-v\d+|Neck\w+-v\d+"), "custom_envs"),
)
ATARI = re.compile(r"(?:ale_py:)?(?:ALE/)?([A-Z]\w*?)(?:NoFrameskip)?-v[045]")
GAME = "Pong"
"""Stands for the game where an entry is that of all Atari games."""


def is_atari(environment: str) -> bool:
    """Whether an id is one of the Atari games'."""
    return environment == "atari" or "NoFrameskip" in environment or "ALE/" in environment


def with_module(environment: str) -> str:
    """Return the id with the package that registers it, if that is not gymnasium itself."""
    if ":" in environment:
        return environment
    module = registering_module(environment) or next(
        (name for pattern, name in _OF_THE_ZOO if pattern.fullmatch(environment)), None
    )
    return environment if module is None else f"{module}:{environment}"
