"""The teacher of a run: its log-probabilities of the policy's responses.

They come from the learner's ranks or from a server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from rlinf.config import Config
from rlinf.data.batch import Batch
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
    teacher = config.teacher
    if teacher.past_policy != "none":
        return _finite(lambda batch: learner.evaluate(batch, reference=True).logprobs), {
            "teacher": str(config.facts.teacher)
        }
    if teacher.path is not None:
        require_same_tokenizer(tokenizer, load_tokenizer(teacher.path), key="teacher.path", name=teacher.path)
        return _finite(learner.teach), {"teacher": teacher.path}
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

    found, name = server.tokenize(PROBE), f"{server.model} at {teacher.base_url}"
    if found is None:
        return _finite(score), {"teacher": f"{name}; its tokenizer could not be compared (there is no /tokenize)"}
    require_same_ids(tokenizer, found, key="teacher.base_url", name=name)
    return _finite(score), {"teacher": name}


def _finite(teach: Teach) -> Teach:
    """Return the same, with a RuntimeError for a token that the teacher finds impossible, or has no number for."""

    def checked(batch: Batch) -> Tensor:
        logprobs = teach(batch)
        bad = (~logprobs.isfinite() & batch.mask).any(dim=1).nonzero().flatten().tolist()
        if bad:
            raise RuntimeError(f"the teacher's log-probabilities are NaN or infinite in rows {bad[:8]}")
        return logprobs

    return checked
