"""Agents: programs that call the policy over HTTP, and what can be learned from their episodes."""

from __future__ import annotations

from rlinf.algorithms import catalog
from rlinf.config.context import Context
from rlinf.config.facts import AGENT, is_agent, is_text

_FORM = "Write agent:module:function."
_EPISODE_COLUMNS = ("values", "step_rewards", "anchor_ids", "greedy_rewards")


def check_agents(context: Context) -> None:
    """An agent has a function and tasks, and an estimator that compares whole episodes."""
    config, reads = context.config, ("env.id",)
    if not is_agent(config.env.id) or config.env.tasks:
        return
    if not all(config.env.id.removeprefix(AGENT).partition(":")):
        context.error("env.id", f"env.id: {config.env.id} names no function.", _FORM)
    if not is_text(config):
        message = f"policy.name: {config.policy.name} is no language model, and agents call one."
        context.error("policy.name", message, "Set policy.name: causal_lm.", reads=reads)
    if "tasks" not in config.env.kwargs:
        message = "env.kwargs.tasks is missing: an agent is given one task in each episode."
        context.error("env.kwargs", message, "Name a JSONL file, or module:function that returns a list.", reads=reads)
    for name, value in (("over_sampling", config.rollout.over_sampling), ("staleness", config.rollout.staleness)):
        if value:
            message = f"rollout.{name}: agents' episodes can't be continued under other weights."
            context.error(f"rollout.{name}", message, "Set it to 0.", reads=reads)
    if context.is_broken("algorithm.adv_type"):
        return
    entry = catalog.estimator(config.algorithm.adv_type)
    if entry.token_kl or config.algorithm.add_token_level_kl or set(entry.needs) & set(_EPISODE_COLUMNS):
        message = (
            f"adv_type: {config.algorithm.adv_type} (with add_token_level_kl: {config.algorithm.add_token_level_kl}) "
            "judges single tokens or turns, and the branches of an agent's episode share one reward."
        )
        also = (*reads, "algorithm.add_token_level_kl")
        context.error("algorithm.adv_type", message, "Choose adv_type: grpo or rloo.", reads=also)
