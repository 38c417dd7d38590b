"""Batch arithmetic: groups, rows, minibatches, and those who share them."""

from __future__ import annotations

from rlinf.config.context import Context, neighbours
from rlinf.config.derived import collects_episodes, decisions_per_iteration, is_text, rows_per_iteration
from rlinf.planning.parallel import Split


def check_batch(context: Context) -> None:
    """Check that all sizes that must divide do so, and that no worker is left without work."""
    if is_text(context.config):
        context.run(_check_text)
    else:
        context.run(_check_simulators)


def _check_text(context: Context) -> None:
    config = context.config
    prompts, size, cuts = config.rollout.batch_size, config.algorithm.group_size, config.algorithm.num_minibatches
    rows = rows_per_iteration(config)
    words = f"the {rows} rows of a step (rollout.batch_size {prompts} x algorithm.group_size {size})"
    if rows % cuts:
        message = f"algorithm.num_minibatches {cuts} does not divide {words}:"
        context.error("algorithm.num_minibatches", message, f"use {neighbours(cuts, rows)}.")
    elif rows // cuts < Split.of(config).data:
        # Ranks that hold parts of one copy of the model see the same rows.
        ranks = config.learner.num_workers
        message = f"learner.num_workers {ranks} is more than the {rows // cuts} rows of a minibatch,"
        message += " so some ranks would have nothing to do."
        fix = f"Use at most {rows // cuts} ranks, or a larger rollout.batch_size."
        context.error("learner.num_workers", message, fix)
    for key, workers in (
        ("env.num_workers", config.env.num_workers),
        ("rollout.num_samplers", config.rollout.num_samplers),
    ):
        if workers > prompts:
            message = f"{key} {workers} is more than rollout.batch_size {prompts}: whole groups go to each."
            context.error(key, message, f"Use at most {prompts}.")


def _check_simulators(context: Context) -> None:
    config = context.config
    envs, workers = config.env.num_envs, config.env.num_workers
    if workers > envs:
        message = f"env.num_workers {workers} is more than env.num_envs {envs}: some would have nothing to step."
        context.error("env.num_workers", message, f"Use at most {envs}.")
        return
    if collects_episodes(config):
        context.run(_check_episodes)
        return
    decisions, cuts = decisions_per_iteration(config), config.algorithm.num_minibatches
    if cuts > decisions:
        message = f"algorithm.num_minibatches {cuts} is more than the {decisions} decisions of a step"
        message += f" (env.num_envs {envs} x rollout.num_steps {config.rollout.num_steps})."
        context.error("algorithm.num_minibatches", message, f"Use at most {decisions}.")


def _check_episodes(context: Context) -> None:
    config = context.config
    groups, size, cuts = config.rollout.batch_size, config.algorithm.group_size, config.algorithm.num_minibatches
    if config.env.num_workers > groups:
        message = f"env.num_workers {config.env.num_workers} is more than the {groups} groups of rollout.batch_size:"
        context.error("env.num_workers", message, f"use at most {groups}, whole groups go to each.")
    episodes = rows_per_iteration(config)
    if cuts > episodes:
        message = f"algorithm.num_minibatches {cuts} is more than the {episodes} episodes of a step"
        message += f" (rollout.batch_size {groups} x algorithm.group_size {size})."
        context.error("algorithm.num_minibatches", message, f"Use at most {episodes}.")
