"""The teacher of a run: its log-probabilities of the policy's responses.

They come from the learner's ranks or from a server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from rlinf.base.redaction import public_url
from rlinf.config import Config
from rlinf.data.batch import Batch
from rlinf.data.inputs import TextInputs
from rlinf.models.loading import load_tokenizer
from rlinf.models.same_tokenizer import PROBE, require_same_ids, require_same_tokenizer
from rlinf.samplers.echo_server import EchoServer
from rlinf.train.workers.learner_pool import LearnerPool

Teach = Callable[[Batch], Tensor]
"""Log-probabilities [B, T] of a batch's tokens under the teacher, 0 where its mask is false."""


def connect_teacher(config: Config, learner: LearnerPool, tokenizer: Any) -> tuple[Teach | None, dict[str, str]]:
    """Return the function that calls the teacher, None if the run has none; and notes on it for people.

    Raises:
        VocabularyError: the teacher has another tokenizer than the policy's ``tokenizer``.
        ServerError: nothing answers at `teacher.base_url`.
    """
    teach, notes = _source(config, learner, tokenizer)
    if teach is None:
        return None, notes
    return _finite(teach if config.teacher.hint is None else hinted_teacher(teach)), notes


def _source(config: Config, learner: LearnerPool, tokenizer: Any) -> tuple[Teach | None, dict[str, str]]:
    """Return the same, as it scores the prompts that it is given, whatever its log-probabilities are."""
    teacher, named = config.teacher, {"teacher": str(config.facts.teacher)}
    if teacher.past_policy == "current":
        return lambda batch: learner.evaluate(batch).logprobs, named
    if teacher.past_policy != "none":
        return lambda batch: learner.evaluate(batch, reference=True).logprobs, named
    if teacher.path is not None:
        require_same_tokenizer(tokenizer, load_tokenizer(teacher.path), name=teacher.path)
        return learner.teach, named
    if teacher.base_url is None:
        return None, {}
    server = EchoServer(
        teacher.base_url,
        model=teacher.model,
        timeout_s=teacher.timeout_s,
        concurrency=teacher.concurrency,
        api_key_env=teacher.api_key_env,
    )

    def score(batch: Batch) -> Tensor:
        return server.score(batch)

    result, name = server.tokenize(PROBE), f"{server.model} at {public_url(teacher.base_url)}"
    if result is None:
        return score, {"teacher": f"{name}; its tokenizer could not be compared (there is no /tokenize)"}
    require_same_ids(tokenizer, result, key="teacher.base_url", name=name)
    return score, {"teacher": name}


def hinted_teacher(teach: Teach) -> Teach:
    """Return the same for a teacher that reads `teacher.hint` instead of the policy's prompt.

    Rows without a hint get the policy's own log-probabilities: they learn nothing from the teacher."""

    def score(batch: Batch) -> Tensor:
        inputs, has = TextInputs.of(batch.inputs).hinted()
        return torch.where(has[:, None], teach(batch.replace(inputs=inputs)), batch.proximal_logprobs)

    return score


def _finite(teach: Teach) -> Teach:
    """Return the same, with a RuntimeError for a token that the teacher finds impossible, or has no number for."""

    def checked(batch: Batch) -> Tensor:
        logprobs = teach(batch)
        bad = (~logprobs.isfinite() & batch.mask).any(dim=1).nonzero().flatten().tolist()
        if bad:
            raise RuntimeError(f"the teacher's log-probabilities are NaN or infinite in rows {bad[:8]}")
        return logprobs

    return checked
