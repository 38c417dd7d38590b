"""The conversations of a text run: its environments, how their prompts are written, and which rollout makes them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from rlinf.config import Config
from rlinf.config.facts import is_agent
from rlinf.rollouts.text.env_worker import EnvFacts, TextEnvWorker, text_env_worker
from rlinf.rollouts.text.members import Member, members_of
from rlinf.rollouts.text.rollout import TextRollout
from rlinf.samplers.spec import SamplerSpec, sampler_spec
from rlinf.train.build.setup import Setup


def conversation_rollout(config: Config, address: str) -> Callable[..., TextRollout]:
    """For environments that the policy talks to, or for agents, who call the policy at ``address``."""
    if is_agent(config.env.id):
        from rlinf.rollouts.agents.rollout import AgentRollout

        return functools.partial(AgentRollout, address=address)
    return TextRollout


def conversation_envs(config: Config) -> TextEnvWorker:
    """The environments, as each of their workers makes them."""
    watched = config.cluster.backend != "local"
    return text_env_worker(config.facts.training_env, config.facts.text_envs, watched=watched)


def conversation_members(
    config: Config, tokenizer: Any, facts: EnvFacts, *, end_token_ids: Collection[int] = ()
) -> list[Member]:
    """The environments as the rollout knows them."""
    environments, stop = config.facts.text_envs, config.rollout.stop
    return members_of(environments, facts, tokenizer, config.data, stop=stop, end_token_ids=end_token_ids)


def conversation_spec(setup: Setup, tokenizer: Any, folder: Path) -> SamplerSpec:
    """The facts for every sampler."""
    config = setup.config
    return sampler_spec(
        config.policy,
        tokenizer,
        folder,
        seed=config.run.seed,
        max_model_len=config.facts.row_tokens,
        device=setup.devices.sampler_device,
    )
