"""The conversations of a text run: its environments, how their prompts are written, and which rollout makes them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from rlinf.base.errors import UserError
from rlinf.config import Config
from rlinf.models.vision.reading import PictureReader
from rlinf.rollouts.text.env_worker import EnvFacts, TextEnvWorker, text_env_worker
from rlinf.rollouts.text.members import TextMixtureEnv, members_of
from rlinf.rollouts.text.rollout import TextRollout
from rlinf.rollouts.text.tokens.prompts import PromptRenderer
from rlinf.samplers.spec import SamplerSpec, sampler_spec
from rlinf.schema.derived import is_agent
from rlinf.train.assemble.setup import ResolvedRun


def conversation_rollout(config: Config, address: str) -> Callable[..., TextRollout]:
    """For environments that the policy talks to, or for agents, who call the policy at ``address``."""
    if is_agent(config.env.id):
        from rlinf.rollouts.agents.rollout import AgentRollout

        return functools.partial(AgentRollout, address=address)
    return TextRollout


def conversation_envs(config: Config) -> TextEnvWorker:
    """Build the environments, as each of their workers makes them."""
    return env_builder(config)()


def env_builder(config: Config) -> Callable[..., TextEnvWorker]:
    """Return what builds the environments in a worker, which imports neither this package nor torch for it."""
    watched = config.cluster.backend != "local"
    facts, evaluates = config.facts, config.evaluation.size > 0
    build = functools.partial(
        text_env_worker, facts.training_env, facts.text_envs, watched=watched, evaluates=evaluates
    )
    return lambda _info=None: build()


def conversation_members(
    config: Config, tokenizer: Any, facts: EnvFacts, *, end_token_ids: Collection[int] = ()
) -> list[TextMixtureEnv]:
    """Build the environments in the form that the rollout uses."""
    environments, stop = config.facts.text_envs, config.rollout.stop
    reader = policy_reader(config, tokenizer)
    return members_of(
        environments, facts, tokenizer, config.data, stop=stop, end_token_ids=end_token_ids, reader=reader
    )


def policy_reader(config: Config, tokenizer: Any) -> PictureReader | None:
    """How the policy reads pictures; None for a model of text.

    Raises:
        UserError: another part of the run does not read them.
    """
    from rlinf.models.architecture import architecture_config
    from rlinf.models.gguf import model_folder
    from rlinf.models.loading import checkpoint_config
    from rlinf.models.vision.reading import picture_reader

    policy = config.policy
    if policy.path is None:
        reader = picture_reader(architecture_config(policy.architecture, tokenizer), None, policy.vision)
    else:
        reader = picture_reader(checkpoint_config(policy.path), model_folder(policy.path), policy.vision)
    # The checks of the configuration cannot determine the family of a model on the hub.
    for _, message, fix in () if reader is None else config.facts.text_only_parts:
        raise UserError(f"{message} {fix}")
    return reader


def conversation_spec(setup: ResolvedRun, tokenizer: Any, folder: Path) -> SamplerSpec:
    """Collect the facts for every sampler."""
    config = setup.config
    return sampler_spec(
        config.policy,
        tokenizer,
        folder,
        seed=config.run.seed,
        max_model_len=config.facts.row_tokens,
        device=setup.devices.sampler_device,
        turn_ends=turn_ends(config, tokenizer),
        transfer=config.facts.transfer_backend,
    )


def response_ends(config: Config, tokenizer: Any) -> frozenset[int]:
    """Tokens that an exported policy declares as ends: those it is taught, and those of the checkpoint it began as."""
    from rlinf.models.gguf import model_folder
    from rlinf.models.response_ends import declared_ends

    path = config.policy.path
    return turn_ends(config, tokenizer) | (set() if path is None else declared_ends(model_folder(path)))


def turn_ends(config: Config, tokenizer: Any) -> frozenset[int]:
    """Tokens that end the policy's turn, as it is taught them."""
    data = config.data
    renderer = PromptRenderer(tokenizer, chat_template=data.chat_template, template_kwargs=data.chat_template_kwargs)
    return renderer.turn_ends
