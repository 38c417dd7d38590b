"""Configurations of simulator rollouts, for tests that have no file."""

from __future__ import annotations

from typing import Literal

from rlinf.config import Config
from rlinf.schema import (
    AlgorithmConfig,
    EnvConfig,
    EvaluationConfig,
    PolicyConfig,
    RolloutConfig,
    RunConfig,
)

Layout = Literal["fragments", "episodes"]


def simulator_config(
    env: EnvConfig,
    layout: Layout = "fragments",
    *,
    seed: int = 0,
    num_steps: int = 128,
    groups: int = 1,
    group_size: int = 1,
    gamma: float = 1.0,
    adv_type: str = "grpo",
    off_policy: bool = False,
    evaluation: EvaluationConfig | None = None,
) -> Config:
    """An iteration is ``num_steps`` decisions of every env, or ``groups`` of whole episodes (for ``adv_type``)."""
    adv_type, loss_type = ("gae" if layout == "fragments" else adv_type), ("sac" if off_policy else "actor")
    return Config(
        run=RunConfig(seed=seed),
        env=env,
        policy=PolicyConfig(name="actor_critic"),
        rollout=RolloutConfig(num_steps=num_steps, batch_size=groups),
        algorithm=AlgorithmConfig(adv_type=adv_type, loss_type=loss_type, group_size=group_size, gamma=gamma),
        evaluation=evaluation or EvaluationConfig(num_envs=1),
    )
