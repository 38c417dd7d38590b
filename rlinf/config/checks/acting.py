"""Where a simulator policy acts: in the env workers, or in sampler actors."""

from __future__ import annotations

from rlinf.config.context import Context
from rlinf.config.facts import acts_in, is_text

_SAMPLER_KEYS = (
    "rollout.merge_requests",
    "rollout.pipeline_stages",
    "rollout.num_samplers",
    "cluster.gpus_per_sampler",
)


def check_acting(context: Context) -> None:
    """Only samplers have stages, and every stage has envs."""
    config = context.config
    if is_text(context.config):
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
