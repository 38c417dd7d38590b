"""Names of verl's earlier versions, and of projects that build on it, as verl has them today."""

from __future__ import annotations

import re
from collections.abc import Mapping

from rlinf.config.tree import Located, drop, get, put
from rlinf_import.sheet import Sheet, shown
from rlinf_import.written import upwards

_ACTOR, _ROLLOUT = "actor_rollout_ref.actor.", "actor_rollout_ref.rollout."
MOVED: Mapping[str, str] = {
    f"{_ROLLOUT}n_val": f"{_ROLLOUT}val_kwargs.n",
    f"{_ROLLOUT}val_temperature": f"{_ROLLOUT}val_kwargs.temperature",
    f"{_ROLLOUT}n_agent": f"{_ROLLOUT}n",
    "algorithm.grpo_use_std": "algorithm.norm_adv_by_std_in_grpo",
    "trainer.rejection_sample": "algorithm.filter_groups.enable",
    "data.shuffle_train_dataloader": "data.shuffle",
    "data.max_start_length": "data.max_prompt_length",
}
"""An earlier name -> verl's."""
_OF_LOSSES = ("loss_mode", "clip_cov_ratio", "clip_cov_lb", "clip_cov_ub", "kl_cov_ratio", "ppo_kl_coef")
_TOOLS = "env.kwargs.tools of rlinf_envs:rlinf/Math-v0, or an agent of yours (docs/agents.md)"
_AGENTS: Mapping[str, str] = {
    "retriever": "a search engine that the policy queries",
    "do_search": "a search engine that the policy queries",
    f"{_ROLLOUT}search": "a search engine that the policy queries",
    "actor_rollout_ref.env": "a server of tools",
    "actor_rollout_ref.agent.enable_agent": "agents of verl-tool",
    f"{_ROLLOUT}n_vote": "labels by a vote of the responses",
    "data.use_re_call": "agents of ReCall",
    "env.env_name": "environments of verl-agent",
    "agent_proxy": "agents of RAGEN",
    "es_manager": "environments of RAGEN",
    "rllm.agent": "agents of rLLM",
    "rllm.env": "environments of rLLM",
    "rllm.workflow": "workflows of rLLM",
}
"""Sections and switches by which projects add tools and environments of their own."""
_ADDED = re.compile(r"search|retriev|sandbox|tool|agent|recurrent|env_url|llm_calls")
"""What such keys are called."""
_OFF = (False, None, 0, "", "False", "none", "null")


def rename(sheet: Sheet) -> None:
    """Move settings to the names that verl has for them today, each with a line of the report."""
    tree = sheet.source.tree
    for older, name in MOVED.items():
        if older != f"{_ROLLOUT}n_agent" and get(tree, name) is not None and get(tree, older) is not None:
            continue
        _move(sheet, older, name)
    if get(tree, f"{_ACTOR}policy_loss.loss_mode") is None and get(tree, f"{_ACTOR}loss_mode") is not None:
        for part in _OF_LOSSES:
            _move(sheet, f"{_ACTOR}{part}", f"{_ACTOR}policy_loss.{part}")
        share = get(tree, f"{_ACTOR}k_percent")
        if share is not None and isinstance(share.value, int | float):
            share.value = share.value / 100
        _move(sheet, f"{_ACTOR}k_percent", f"{_ACTOR}policy_loss.kl_cov_ratio")
    samples = get(tree, f"{_ROLLOUT}val_kwargs.n")
    if samples is not None and any("n_val: " in line for line in sheet.differs):
        _add(sheet, f"{_ROLLOUT}val_kwargs.do_sample", Located(True, samples.origin))
    tokens = drop(tree, f"{_ACTOR}use_token_level_loss")
    if tokens is not None:
        mode = "token-mean" if tokens.value is True else "seq-mean-token-mean"
        sheet.differs.append(
            f"{tokens.origin}: use_token_level_loss: {shown(tokens.value)}: read as loss_agg_mode: {mode}"
        )
        _add(sheet, f"{_ACTOR}loss_agg_mode", Located(mode, tokens.origin))


def refuse_agents(sheet: Sheet) -> None:
    """Refuse tools and environments that a project has added to verl."""
    search = get(sheet.source.tree, "do_search")
    for key, feature in _AGENTS.items():
        located = get(sheet.source.tree, key)
        if key == "retriever" and search is not None and search.value is False:
            continue
        if located is not None and located.value not in _OFF:
            sheet.refuse(feature, _TOOLS, key)
    for key, located in sheet.source.leaves():
        known = any(name in sheet.names or name in sheet.defaults or name in _AGENTS for name in upwards(key))
        if not known and located.plain() not in (*_OFF, {}, []) and _ADDED.search(key):
            sheet.refuse("tools or agents that a project has added to verl", _TOOLS, key)
    mixed = get(sheet.source.tree, f"{_ACTOR}use_off_policy_loss")
    if mixed is not None and mixed.value is True:
        nearest = "`rlinf sft` of the demonstrations, and then adv_type: grpo"
        sheet.refuse("demonstrations within groups of responses", nearest, f"{_ACTOR}use_off_policy_loss")


def _move(sheet: Sheet, older: str, name: str) -> None:
    located = drop(sheet.source.tree, older)
    if located is not None:
        put(sheet.source.tree, name, located)
        sheet.differs.append(f"{located.origin}: {older}: {shown(located.plain())}: read as {name}")


def _add(sheet: Sheet, name: str, located: Located) -> None:
    if get(sheet.source.tree, name) is None:
        put(sheet.source.tree, name, located)
