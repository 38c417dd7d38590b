"""Agents: programs that call the policy over HTTP, and what can be learned from their episodes."""

from __future__ import annotations

from rlinf.algorithms import catalog
from rlinf.config.context import Context
from rlinf.config.derived import is_text
from rlinf.config.names import nearest
from rlinf.schema.derived import AGENT, VERIFIERS, is_agent

_FORM = "Write agent:module:function."
_VERIFIERS = ("taskset", "environment", "first", "count")
_EPISODE_COLUMNS = ("values", "step_rewards", "anchor_ids", "greedy_rewards", "reward_terms")


def check_agents(context: Context) -> None:
    """Check that an agent has a function and tasks, and an estimator that compares whole episodes."""
    config = context.config
    if is_text(config) and not config.env.id.startswith(VERIFIERS):
        context.unread("env.python", "is read by tasksets of verifiers and by simulators.", "Take it out.")
    if not is_agent(config.env.id) or config.env.tasks:
        return
    if config.env.id.startswith(VERIFIERS):
        context.run(_check_verifiers)
    else:
        context.run(_check_function)
    if not is_text(config):
        message = f"policy.name: {config.policy.name} is no language model, and agents call one."
        context.error("policy.name", message, "Set policy.name: causal_lm.")
    if config.evaluation.wrong_tools:
        message = "evaluation.wrong_tools: an agent calls its own tools, whose answers can't be changed here."
        context.error("evaluation.wrong_tools", message, "Take it out.")
    if config.rollout.over_sampling:
        message = "rollout.over_sampling: agents' episodes can't be continued under other weights."
        context.error("rollout.over_sampling", message, "Set it to 0.")
    if context.is_broken("algorithm.adv_type"):
        return
    entry = catalog.estimator(config.algorithm.adv_type)
    if entry.penalises_tokens(config.algorithm) or set(entry.needs) & set(_EPISODE_COLUMNS):
        message = (
            f"adv_type: {config.algorithm.adv_type} (with add_token_level_kl: {config.algorithm.add_token_level_kl}) "
            "judges single tokens or turns, and the branches of an agent's episode share one reward."
        )
        context.error("algorithm.adv_type", message, "Choose adv_type: grpo or rloo.")


def _check_function(context: Context) -> None:
    env = context.config.env
    if not all(env.id.removeprefix(AGENT).partition(":")):
        context.error("env.id", f"env.id: {env.id} names no function.", _FORM)
    if "tasks" not in env.kwargs:
        message = "env.kwargs.tasks is missing: an agent is given one task in each episode."
        context.error("env.kwargs", message, "Name a JSONL file, or module:function that returns a list.")


def _check_verifiers(context: Context) -> None:
    """Check that the interpreter that has the package is named."""
    env = context.config.env
    if not env.id.removeprefix(VERIFIERS):
        context.error("env.id", f"env.id: {env.id} names no taskset.", "Write verifiers:NAME.")
    if env.python is None:
        message = f"env.python is missing: {env.id} is played by an interpreter that has the package verifiers."
        context.error("env.python", message, "Run make venvs/verifiers, and name venvs/verifiers/bin/python.")
    for name in env.kwargs:
        if name not in _VERIFIERS:
            meant = nearest(name, _VERIFIERS)
            fix = f"Did you mean {meant[0]}?" if meant else f"It has {', '.join(_VERIFIERS)}."
            context.error("env.kwargs", f"env.kwargs.{name}: {env.id} has no {name}.", fix)
