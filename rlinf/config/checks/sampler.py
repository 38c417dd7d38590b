"""Who generates: the options of one sampler are not read by another."""

from __future__ import annotations

from rlinf.algorithms.catalog import columns_of
from rlinf.config.context import Context, neighbours
from rlinf.config.facts import is_text, max_turns
from rlinf.config.names import leaves


def check_sampler(context: Context) -> None:
    """A server has an address, and options of samplers that were not chosen are reported."""
    rollout = context.config.rollout
    if not is_text(context.config):
        return
    for name in ("vllm", "server"):
        # `auto` may choose vllm, never a server.
        if rollout.sampler == name or (rollout.sampler == "auto" and name == "vllm"):
            continue
        for key in leaves():
            if key.startswith(f"rollout.{name}."):
                why = f"is not read by rollout.sampler: {rollout.sampler}."
                context.unread(key, why, f"Set rollout.sampler: {name}.", reads=("rollout.sampler",))
    if rollout.sampler in ("vllm", "server"):
        why = f"is not read by rollout.sampler: {rollout.sampler}."
        context.unread("rollout.generation_batch_size", why, "Take it out.", reads=("rollout.sampler",))
    for key in ("ahead", "staleness"):
        if getattr(rollout, key) and rollout.sleep == "always":
            message = f"rollout.{key}: samplers work while the learner does, so they can't sleep meanwhile."
            fix = f"Set rollout.sleep: auto, or rollout.{key}: 0."
            context.error("rollout.sleep", message, fix, reads=(f"rollout.{key}",))
    if rollout.staleness > 0:
        _check_staleness(context)
    elif rollout.replay_arrivals is not None:
        why = "is not read while rollout.staleness is 0."
        context.unread("rollout.replay_arrivals", why, "Set rollout.staleness as in that run.")
    if rollout.temperature == 0 and context.config.algorithm.group_size > 1:
        message = "rollout.temperature 0 gives every member of a group the same response: nothing can be compared."
        reads = ("algorithm.group_size",)
        context.error("rollout.temperature", message, "Set it to 1.0, or to anything above 0.", reads=reads)
    if rollout.over_sampling > 0:
        _check_over_sampling(context)
    parallel = rollout.vllm.tensor_parallel_size
    heads = context.config.policy.architecture.get("num_attention_heads")
    if rollout.sampler == "vllm" and isinstance(heads, int) and heads % parallel:
        message = f"rollout.vllm.tensor_parallel_size {parallel} does not divide the {heads} attention heads:"
        key = "rollout.vllm.tensor_parallel_size"
        context.error(key, message, f"use {neighbours(parallel, heads)}.", reads=("policy.architecture",))
    if rollout.sampler == "server":
        _check_server(context)


def _check_server(context: Context) -> None:
    """It is somewhere else: one client, no device of ours, and nothing that we could put to sleep."""
    rollout = context.config.rollout
    reads = ("rollout.sampler",)
    if not rollout.server.base_url:
        message = "rollout.sampler: server needs the address of the server."
        fix = "Set rollout.server.base_url: http://localhost:8000/v1, for example."
        context.error("rollout.server.base_url", message, fix, reads=reads)
    if rollout.num_samplers > 1:
        message = f"rollout.num_samplers {rollout.num_samplers}: a server does its own balancing, one client is enough."
        context.error("rollout.num_samplers", message, "Set it to 1.", reads=reads)
    if rollout.sleep == "always":
        message = "rollout.sleep: a server does not free its memory for the learner, it has its own."
        context.error("rollout.sleep", message, "Set it to auto.", reads=reads)
    if context.config.cluster.gpus_per_sampler:
        message = "cluster.gpus_per_sampler: the server has its own GPUs, its client needs none."
        context.error("cluster.gpus_per_sampler", message, "Set it to null.", reads=reads)


def _check_staleness(context: Context) -> None:
    """One turn, and nobody else who asks the samplers meanwhile."""
    config = context.config
    why = f"rollout.staleness {config.rollout.staleness} generates continuously,"
    against = {
        "env.max_turns": (max_turns(config) > 1, "for conversations of one turn only.", "rollout.ahead: 1"),
        "rollout.over_sampling": (config.rollout.over_sampling > 0, "and begins as many prompts as it may.", "0"),
        "rollout.ahead": (config.rollout.ahead > 0, "which is more than one batch ahead.", "0"),
        "algorithm.adv_type": (
            "greedy_rewards" in columns_of(config.algorithm.adv_type),
            f"and adv_type: {config.algorithm.adv_type} needs further responses to the prompts of a batch.",
            "grpo",
        ),
        "reward_model.supervision": (
            config.reward_model.supervision != "none", "and a reward model samples answers of its own.", "none"
        ),
        "rollout.sampler": (config.rollout.sampler == "server", "which rollout.sampler: server can't interrupt.", "hf"),
    }  # fmt: skip
    for key, (clashes, reason, instead) in against.items():
        if clashes:
            fix = f"Set {instead}." if ":" in instead else f"Set it to {instead}."
            context.error(key, f"{why} {reason}", fix, reads=("rollout.staleness",))


def _check_over_sampling(context: Context) -> None:
    """Responses are cut off and continued: one turn, and not two rollouts of one step."""
    config = context.config
    why = "rollout.over_sampling continues unfinished responses in the next step, "
    if max_turns(config) > 1:
        message = f"{why}which env.max_turns {max_turns(config)} does not allow."
        context.error("rollout.over_sampling", message, "Set it to 0.", reads=("env.max_turns",))
    if config.algorithm.dynamic_sampling:
        message = f"{why}and algorithm.dynamic_sampling collects a step several times."
        fix = "Set one of the two to 0 (false)."
        context.error("rollout.over_sampling", message, fix, reads=("algorithm.dynamic_sampling",))
