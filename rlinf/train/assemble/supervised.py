"""Supervised fine-tuning on files: what `sft.data` holds, how held-out rows are measured, and runs of nothing else."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rlinf.algorithms.dpo import Preferences, dpo
from rlinf.algorithms.prepare import Preparation
from rlinf.base.errors import UserError
from rlinf.base.random_streams import stream_seed
from rlinf.cluster import Cluster
from rlinf.config import Config
from rlinf.data.batch import Batch
from rlinf.data.messages import Metrics
from rlinf.datasets.conversation_files import Conversation, read_answers, unread_columns, unread_splits
from rlinf.models.architecture_numbers import most_positions
from rlinf.models.tokenizer_export import export_tokenizer
from rlinf.rollouts.text.counted_marks import WrittenMarks, written_marks
from rlinf.rollouts.text.imitation import ConversationEncoder, Encoded, ImitationData
from rlinf.schema.learner import SftConfig
from rlinf.train.assemble.conversations import policy_reader, response_ends
from rlinf.train.assemble.setup import ResolvedRun
from rlinf.train.assemble.text_learner import start_learner
from rlinf.train.assemble.tokenizer import kept_tokenizer, policy_tokenizer
from rlinf.train.assemble.tokenizer_texts import file_texts
from rlinf.train.evaluation.text import Evaluation
from rlinf.train.graph import Graph, WarmStartPreparation, imitated
from rlinf.train.saved_batches import NoRollout
from rlinf.train.workers.learner_pool import LearnerPool

Answers = tuple[Conversation, ...]
"""A row of a file: a conversation, or for DPO a chosen and a rejected one."""


@dataclass(frozen=True)
class _SupervisedData:
    """The rows of `sft.data`, encoded and divided."""

    train: ImitationData
    held_out: tuple[Batch, ...]
    """Rows that are only measured; none without `sft.eval_data` and `sft.eval_fraction`."""
    notes: Mapping[str, int | str]


def supervised_data(config: Config, tokenizer: Any, marks: WrittenMarks | None = None) -> _SupervisedData:
    """Read, encode and divide the conversations. Raises UserError for what cannot be trained on.

    ``marks``: those in all rows, if they have been counted already.
    """
    sft = config.sft
    assert sft.data is not None
    encoder = ConversationEncoder(
        tokenizer,
        chat_template=config.data.chat_template,
        system_prompt=config.data.system_prompt,
        template_kwargs=config.data.chat_template_kwargs,
        reader=policy_reader(config, tokenizer),
    )
    pad, positions = tokenizer.pad_token_id, most_positions(config.policy)

    def data(rows: Sequence[Sequence[Encoded]]) -> ImitationData:
        return ImitationData(
            rows, batch_size=sft.batch_size, pad_token_id=pad, seed=stream_seed(config.run.seed, "sft")
        )

    def encoded(read: Sequence[Answers]) -> list[list[Encoded]]:
        """Return the rows that are short enough. Raises UserError if the model does not see all of one."""
        rows = [[encoder.encode(one) for one in row] for row in read]
        rows = [row for row in rows if max(map(len, row)) <= sft.max_tokens]
        beyond = [row[0] for row in rows if positions is not None and max(map(len, row)) > positions]
        if beyond:
            raise UserError(
                f"sft.data: {len(beyond)} of {len(rows)} conversations have more tokens than the model sees "
                f"({positions}), the first in {beyond[0].conversation.location}: write sft.max_tokens: {positions}, "
                "which leaves them out"
            )
        return rows

    to_train, to_measure, shared = _divided(sft)
    marks = marks or written_marks(itertools.chain(*to_train, *to_measure), encoder.marks)
    train, aside = encoded(to_train), encoded(to_measure)
    own = to_measure if sft.eval_data is None else ()
    long = len(to_train) + len(own) - len(train) - (len(aside) if sft.eval_data is None else 0)
    made = data(train)
    epochs = sft.steps * sft.batch_size / len(train)
    kind = "pairs" if sft.loss == "dpo" else "conversations"
    notes: dict[str, int | str] = {
        "sft.data": f"{len(train)} {kind}; {sft.steps} steps of {sft.batch_size} are {epochs:.2f} epochs",
        "sft.data longer than sft.max_tokens, left out": long,
        "sft.data held out": len(aside),
        "sft.data: splits that are not read": unread_splits(str(sft.data)),
        "sft.data left out, whose prompts sft.eval_data has": shared,
        **{f"sft.data: {what}": meaning for what, meaning in marks.remarks()},
        **{f"sft.data: column that is not read, {name}": count for name, count in unread_columns(to_train).items()},
    }
    return _SupervisedData(made, tuple(data(aside).parts()) if aside else (), notes)


def with_counted_steps(config: Config) -> Config:
    """Return the same configuration with `sft.steps` instead of `sft.epochs`. Raises UserError for unreadable data."""
    sft = config.sft
    if sft.epochs is None:
        return config
    rows = len(_divided(sft)[0])
    steps = max(1, math.ceil(sft.epochs * rows / sft.batch_size))
    return replace(config, sft=replace(sft, steps=steps, epochs=None))


def _divided(sft: SftConfig) -> tuple[list[Answers], list[Answers], int]:
    """Return the rows to train on, those that are only measured, and how many were left out for them.

    Rows are left out if `sft.eval_data` has their prompt.
    Raises UserError for unreadable data, and if `sft.eval_data` has all prompts."""
    pairs = sft.loss == "dpo"
    rows = read_answers(str(sft.data), pairs=pairs)
    if sft.eval_data is None:
        divided: tuple[list[Answers], list[Answers]] = [], []
        for row in rows:
            # By a hash of the prompt: the same side in every run, whatever else is in the file.
            measured = stream_seed(0, "sft held out", _prompt(row[0])) / 2**63 < sft.eval_fraction
            divided[measured].append(row)
        return *divided, 0
    held_out = read_answers(sft.eval_data, pairs=pairs, split="eval")
    prompts = {_prompt(row[0]) for row in held_out}
    train = [row for row in rows if _prompt(row[0]) not in prompts]
    if not train:
        raise UserError(f"sft.eval_data {sft.eval_data} has the prompts of all {len(rows)} rows of {sft.data}")
    return train, held_out, len(rows) - len(train)


def _prompt(conversation: Conversation) -> str:
    return "\0".join(message.content for message in conversation.messages if not message.imitated)


def _held_out_loss(learner: LearnerPool, batches: Sequence[Batch]) -> Metrics:
    """`eval/sft_loss`: cross-entropy per imitated token under the current weights; its exponential; how many tokens."""
    total, count = 0.0, 0
    for batch in batches:
        logprobs = learner.evaluate(batch).logprobs
        total -= float(torch.where(batch.mask, logprobs.double(), 0.0).sum())
        count += int(batch.mask.sum())
    loss = total / count
    return {"eval/sft_loss": loss, "eval/sft_perplexity": math.exp(min(loss, 700.0)), "eval/sft_tokens": float(count)}


def _held_out_preferences(
    learner: LearnerPool, batches: Sequence[Batch], before: Sequence[Tensor], *, beta: float
) -> Metrics:
    """Compute the loss of DPO over held-out pairs, and the share of pairs that it prefers as they are labelled.

    ``before``: log-probabilities of each batch under the policy that pairs are measured against.
    """
    margins = torch.cat(
        [
            dpo(learner.evaluate(batch).logprobs, reference, batch.mask, beta=beta).margins
            for batch, reference in zip(batches, before, strict=True)
        ]
    )
    result = Preferences(torch.zeros(0), margins)
    return {"eval/dpo_loss": result.loss, "eval/dpo_accuracy": result.accuracy, "eval/dpo_pairs": float(len(margins))}


def with_held_out_rows(
    evaluate: Callable[[], Evaluation] | None, learner: LearnerPool, batches: Sequence[Batch], sft: SftConfig
) -> Callable[[], Evaluation] | None:
    """Return ``evaluate`` with the metrics of held-out rows added; either may be missing.

    Of pairs the learner must still have the weights that they are measured against.
    """
    if not batches:
        return evaluate
    measure = functools.partial(_held_out_loss, learner, batches)
    if sft.loss == "dpo":
        before = [learner.evaluate(batch).logprobs for batch in batches]
        measure = functools.partial(_held_out_preferences, learner, batches, before, beta=sft.dpo_beta)

    def both() -> Evaluation:
        loss = measure()
        if evaluate is None:
            return Evaluation(loss)
        result = evaluate()
        return replace(result, metrics={**result.metrics, **loss})

    return both


def warm_start_preparation(learner: LearnerPool, sft: SftConfig) -> WarmStartPreparation:
    """Return the preparation of a batch of conversations before the update: none, or for DPO its pairs' advantages."""
    if sft.loss == "dpo":
        return functools.partial(_preferred, learner, sft)
    return imitated


def _preferred(learner: LearnerPool, sft: SftConfig, batch: Batch) -> tuple[Batch, Metrics]:
    now, before = (learner.evaluate(batch, reference=reference).logprobs for reference in (False, True))
    result = dpo(now, before, batch.mask, beta=sft.dpo_beta, imitation=sft.dpo_imitation)
    metrics = {
        "sft/loss": result.loss,
        "sft/dpo_accuracy": result.accuracy,
        "sft/dpo_margin": float(result.margins.mean()),
    }
    return batch.replace(advantages=result.advantages), metrics


def build_supervised_graph(setup: ResolvedRun, cluster: Cluster, folder: Path) -> Graph:
    """Build a learner and its data: no environment, no sampler."""
    config = setup.config
    # The policy's tokenizer, or one trained on the conversations if an architecture defines the policy.
    texts = functools.partial(file_texts, config)
    tokenizer = kept_tokenizer(folder / "tokenizer", functools.partial(policy_tokenizer, config, texts))
    data = supervised_data(config, tokenizer)
    learner = start_learner(setup, cluster, str(folder / "tokenizer"))
    return Graph(
        rollout=NoRollout(),
        learner=learner,
        preparation=Preparation(),
        send_weights=lambda version: {},
        evaluate=with_held_out_rows(None, learner, data.held_out, config.sft),
        warm_start_batch=data.train.batch,
        warm_start_preparation=warm_start_preparation(learner, config.sft),
        write_policy_extras=functools.partial(export_tokenizer, tokenizer, response_ends(config, tokenizer)),
        notes={**setup.notes, **data.notes},
    )
