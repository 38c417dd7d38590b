"""Where a simulator policy acts: in the env workers, or in sampler actors."""

from __future__ import annotations

from typing import Literal

from rlinf.config.checks.kind import is_text
from rlinf.config.context import Context
from rlinf.config.schema import Config

_SAMPLER_KEYS = ("rollout.pipeline_stages", "rollout.num_samplers", "cluster.gpus_per_sampler")


def acts_in(config: Config) -> Literal["worker", "sampler"]:
    """What `rollout.act_in` comes to: a checkpoint is too large to be copied into every env worker."""
    rollout = config.rollout
    if rollout.act_in != "auto":
        return rollout.act_in
    large = config.policy.name == "vla" and config.policy.vla.language.path is not None
    return "sampler" if large or rollout.pipeline_stages > 1 or rollout.num_samplers > 1 else "worker"


def check_acting(context: Context) -> None:
    """Only samplers have stages, and every stage has envs."""
    config = context.config
    if is_text(context):
        return
    if acts_in(config) == "worker":
        for key in _SAMPLER_KEYS:
            why = "is not read where policies act inside the env workers."
            context.unread(key, why, "Set rollout.act_in: sampler, or take it out.", reads=("rollout.act_in",))
        return
    stages, reads = config.rollout.pipeline_stages, ("rollout.act_in", "env.num_envs", "env.num_workers")
    fewest = config.env.num_envs // config.env.num_workers
    if stages > fewest:
        message = f"rollout.pipeline_stages {stages} is more than the {fewest} envs of a worker."
        context.error("rollout.pipeline_stages", message, f"Use at most {max(fewest, 1)}.", reads=reads)
    if stages > 1 and config.env.vectorization == "native":
        message = "env.vectorization: native steps all envs together, which leaves nothing to overlap."
        fix = "Set env.vectorization: sync, or rollout.pipeline_stages: 1."
        context.error("env.vectorization", message, fix, reads=("rollout.pipeline_stages",))
