"""Who generates: the options of one sampler are not read by another."""

from __future__ import annotations

import os

from rlinf.config.context import Context, neighbours
from rlinf.config.derived import continues_responses, is_text, max_turns
from rlinf.config.names import leaves


def check_sampler(context: Context) -> None:
    """Check that a server has an address, and report options of samplers that were not chosen."""
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
                context.unread(key, why, f"Set rollout.sampler: {name}.")
    if rollout.sampler in ("vllm", "server"):
        why = f"is not read by rollout.sampler: {rollout.sampler}."
        context.unread("rollout.generation_batch_size", why, "Take it out.")
    if rollout.staleness and rollout.sleep == "always":
        message = "rollout.staleness: samplers work while the learner does, so they can't sleep meanwhile."
        fix = "Set rollout.sleep: auto, or rollout.staleness: 0."
        context.error("rollout.sleep", message, fix)
    if "" in rollout.stop:
        message = "rollout.stop: an empty text is in every response: each would end at its first token."
        context.error("rollout.stop", message, "Take it out.")
    known = not context.is_broken("algorithm.adv_type")
    if rollout.replay_arrivals is not None and known and not continues_responses(context.config):
        why = "is not read: which weights make which tokens does not depend on time here."
        context.unread("rollout.replay_arrivals", why, "Take it out.")
    if rollout.keep_cache and known:
        context.run(_check_kept_cache)
    if rollout.temperature == 0 and context.config.algorithm.group_size > 1:
        message = "rollout.temperature 0 gives every member of a group the same response: nothing can be compared."
        context.error("rollout.temperature", message, "Set it to 1.0, or to anything above 0.")
    if rollout.over_sampling > 0:
        context.run(_check_over_sampling)
    parallel = rollout.vllm.tensor_parallel_size
    heads = context.config.policy.architecture.get("num_attention_heads")
    if rollout.sampler == "vllm" and isinstance(heads, int) and heads % parallel:
        message = f"rollout.vllm.tensor_parallel_size {parallel} does not divide the {heads} attention heads:"
        key = "rollout.vllm.tensor_parallel_size"
        context.error(key, message, f"use {neighbours(parallel, heads)}.")
    if rollout.sampler == "server":
        context.run(_check_server)


def _check_kept_cache(context: Context) -> None:
    """Check that there is a cache that outlives the weights, and that nothing requests the same tokens again."""
    rollout = context.config.rollout
    if rollout.sampler in ("vllm", "server"):
        why = f"is not read by rollout.sampler: {rollout.sampler}."
        context.unread("rollout.keep_cache", why, "Take it out.")
    elif not continues_responses(context.config):
        why = "is not read: no response is continued under newer weights here."
        fix = "Take it out, or set rollout.staleness: 2."
        context.unread("rollout.keep_cache", why, fix)
    elif rollout.replay_arrivals is not None:
        message = "rollout.keep_cache: keys and values of older weights can't be made again, so no run is repeated."
        fix = "Set it to false, or rollout.replay_arrivals: null."
        context.error("rollout.keep_cache", message, fix)


def _check_server(context: Context) -> None:
    """Check that a server has one client, no device of ours, and nothing to put to sleep."""
    rollout = context.config.rollout
    if not rollout.server.base_url:
        message = "rollout.sampler: server needs the address of the server."
        fix = "Set rollout.server.base_url: http://localhost:8000/v1, for example."
        context.error("rollout.server.base_url", message, fix, at=("rollout.sampler",))
    context.run(check_api_key, "rollout.server.api_key_env", rollout.server.api_key_env)
    if rollout.num_samplers > 1:
        message = f"rollout.num_samplers {rollout.num_samplers}: a server does its own balancing, one client is enough."
        context.error("rollout.num_samplers", message, "Set it to 1.")
    if rollout.sleep == "always":
        message = "rollout.sleep: a server does not free its memory for the learner, it has its own."
        context.error("rollout.sleep", message, "Set it to auto.")
    if context.config.cluster.gpus_per_sampler:
        message = "cluster.gpus_per_sampler: the server has its own GPUs, its client needs none."
        context.error("cluster.gpus_per_sampler", message, "Set it to null.")


def check_api_key(context: Context, key: str, variable: str | None) -> None:
    """Check that the variable of an API key is set: here, or for workers of other machines in `cluster.env`."""
    if variable is not None and not os.environ.get(variable) and variable not in context.config.cluster.env:
        message = f"{key}: the environment variable {variable} is not set."
        context.error(key, message, f"Run `export {variable}=...` first.")


def _check_over_sampling(context: Context) -> None:
    """Check that responses which are cut off and continued are of one turn, or made while the learner runs.

    They may not be in two rollouts of one step."""
    config = context.config
    why = "rollout.over_sampling continues unfinished responses in the next step, "
    if config.rollout.staleness == 0 and max_turns(config) > 1:
        message = f"{why}which env.max_turns {max_turns(config)} does not allow."
        fix = "Set it to 0, or rollout.staleness: 1."
        context.error("rollout.over_sampling", message, fix)
    if config.algorithm.dynamic_sampling:
        message = f"{why}and algorithm.dynamic_sampling collects a step several times."
        fix = "Set one of the two to 0 (false)."
        context.error("rollout.over_sampling", message, fix)
    if config.rollout.staleness == 0 or context.is_broken("algorithm.adv_type"):
        return
    if not continues_responses(config):
        message = f"{why}which whole batches that are collected ahead (rollout.staleness) can't do."
        context.error("rollout.over_sampling", message, "Set one of the two to 0.")
    elif config.rollout.over_sampling > config.rollout.staleness:
        message = (
            f"rollout.over_sampling {config.rollout.over_sampling:g}: with rollout.staleness "
            f"{config.rollout.staleness} at most {config.rollout.staleness} batches more than one may be begun."
        )
        fix = f"Set it to at most {config.rollout.staleness}."
        context.error("rollout.over_sampling", message, fix)
