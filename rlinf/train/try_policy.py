"""A few tasks of a text run, answered by its policy as it is: nothing is trained and nothing is written."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rlinf.base.errors import UserError
from rlinf.config import Config
from rlinf.rollouts.text.conversation import Row
from rlinf.rollouts.text.env_worker import TextEnvWorker
from rlinf.rollouts.text.rollout import TextRollout
from rlinf.samplers.build import hf_sampler
from rlinf.train.assemble.conversations import (
    conversation_envs,
    conversation_members,
    conversation_rollout,
    conversation_spec,
)
from rlinf.train.assemble.setup import ResolvedRun
from rlinf.train.assemble.text_learner import language_model
from rlinf.train.assemble.tokenizer import policy_tokenizer
from rlinf.train.assemble.tokenizer_texts import tokenizer_texts
from rlinf.train.evaluation.text import sample
from rlinf.train.picture_costs import picture_costs

_TERM = "reward/"
_HERE = "127.0.0.1"
"""Agents of a trial run in this process."""


@dataclass(frozen=True)
class TrialOptions:
    """Which tasks are answered, and how often."""

    tasks: int = 4
    samples: int = 0
    """Responses to each task at `rollout.temperature`; 0: one, the likeliest token each time."""
    split: str = "train"


def trial(config: Config, options: TrialOptions) -> Iterator[dict[str, Any]]:
    """Yield the graded responses, as they are there.

    Each has what :func:`rlinf.train.evaluation.text.sample` has of them, and ``task``, ``rendered`` (the prompt
    with the chat template), ``extracted``, ``terms`` (of the reward), ``finish``, ``picture_tokens`` and, of a task's
    first response with pictures, ``picture_costs`` (lines on its first one).

    Raises:
        UserError: the policy is no language model, or a worker of the run would refuse its part of the
            configuration.
    """
    if config.policy.name != "causal_lm":
        raise UserError("rlinf try is for language models (policy.name: causal_lm); rlinf watch shows simulator runs")
    with _conversations(config) as (rollout, envs):
        params = rollout.params if options.samples else rollout.params.greedy()
        for task in range(min(options.tasks, envs.facts(options.split).num_tasks)):
            (prompt,) = envs.prompts(options.split, [task])
            if len(rollout.renderer_of(task).prompt(prompt)) > rollout.max_prompt_length:
                continue  # training drops it too, and rlinf check counts such prompts
            done = rollout.converse(
                options.split, [task], samples=max(1, options.samples), params=params, key=(config.run.seed, 0)
            )
            costs: list[str] = []
            if done.rows and done.rows[0].pictures:
                costs = picture_costs(config, rollout.renderer_of(task).tokenizer, done.rows[0].pictures[0])
            for number, row in enumerate(done.rows):
                yield {**_graded(row, rollout), "picture_costs": [] if number else costs}


@contextmanager
def _conversations(config: Config) -> Iterator[tuple[TextRollout, TextEnvWorker]]:
    """Open the rollout that makes the conversations of a run, and its environments, all in this process."""
    envs = conversation_envs(config)
    try:
        with TemporaryDirectory() as folder:
            yield _rollout(config, envs, Path(folder)), envs
    finally:
        envs.close()


def _rollout(config: Config, envs: TextEnvWorker, folder: Path) -> TextRollout:
    from rlinf.models.loading import activation_dtype

    facts = envs.facts("train")
    texts = functools.partial(tokenizer_texts, config, envs, facts.num_tasks)
    tokenizer = policy_tokenizer(config, texts)
    tokenizer.save_pretrained(str(folder / "tokenizer"))
    setup = ResolvedRun.of(config)
    config = setup.config
    spec = conversation_spec(setup, tokenizer, folder)
    model = language_model(config, str(folder / "tokenizer"), dtype=activation_dtype(config.policy.dtype, spec.device))
    sampler = hf_sampler(model, config.rollout, spec)
    members = conversation_members(config, tokenizer, facts, end_token_ids=spec.eos_token_ids)
    return conversation_rollout(config, _HERE)(sampler, envs, members, config.collection)


def _graded(row: Row, rollout: TextRollout) -> dict[str, Any]:
    terms = {name.removeprefix(_TERM): float(value) for name, value in row.facts.items() if name.startswith(_TERM)}
    return {
        "task": row.task_id,
        **sample(row, rollout.rendered(row.task_id, row.prompt_text)),
        "extracted": row.facts.get("extracted"),
        "terms": terms,
        "finish": row.finish_reason,
        "picture_tokens": sum(token < 0 for token in (*row.prompt_ids, *row.tokens)),
    }
