"""A probe for samplers whose weights cannot be read: at every update they answer a few fixed prompts.

The learner computes the log-probabilities of the same tokens. Rounding alone may separate the two, and what an update
changes in the learner's has to change in the sampler's too.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from rlinf.base.errors import OtherPolicy
from rlinf.base.random_streams import stream_seed
from rlinf.data.batch import Batch
from rlinf.data.inputs import TextInputs, picture_column
from rlinf.data.messages import Completion, Metrics, SampleRequest, SamplingParams
from rlinf.train.workers.learner_pool import LearnerPool
from rlinf.train.workers.sampler_pool import SamplerPool

PROMPTS, TOKENS = 16, 8
"""What a sampler answers at every update."""
_SURE = 4.0
"""Standard errors that a figure has to be beyond its limit by."""
_COMPARED = 24
"""Tokens that have to be the same as before, for a change to be measured on them."""
_FLOOR = 0.1
"""Of the expected distance: a smaller change of the learner's may be lost where weights are rounded."""
_CLEAR = 3.0
"""Times the distance that rounding makes: from here on most of the learner's change is no rounding of its own."""
_HALF = 0.5
"""A sampler shows all of the learner's change, or where it has none of the update nothing of it."""


class _Answer(NamedTuple):
    """A response of one sampler, with log-probabilities float64 [n] of its tokens."""

    tokens: tuple[int, ...]
    sampled: np.ndarray
    learned: np.ndarray


@dataclass(frozen=True)
class Distance:
    """The mean distance of two sets of log-probabilities in nats, and its standard error."""

    mean: float
    error: float

    @classmethod
    def of(cls, answers: Sequence[_Answer]) -> Distance:
        gaps = np.concatenate([np.abs(one.sampled - one.learned) for one in answers])
        return cls(float(gaps.mean()), float(gaps.std() / math.sqrt(len(gaps))))


@dataclass(frozen=True)
class Change:
    """How much of the learner's change the sampler shows too."""

    share: float
    error: float
    """Standard error of ``share``."""
    size: float
    """The learner's own mean change, in nats."""
    idle: bool
    """Not one of the sampler's numbers is another one."""

    @classmethod
    def between(cls, before: Sequence[_Answer], now: Sequence[_Answer]) -> Change | None:
        """None: too few tokens follow the same ones in both."""
        pairs = [(one, other, _alike(one.tokens, other.tokens)) for one, other in zip(before, now, strict=True)]
        if sum(count for _, _, count in pairs) < _COMPARED:
            return None
        sampled = np.concatenate([other.sampled[:n] - one.sampled[:n] for one, other, n in pairs])
        learned = np.concatenate([other.learned[:n] - one.learned[:n] for one, other, n in pairs])
        power = float(learned @ learned)
        if power == 0.0:
            return cls(1.0, 0.0, 0.0, idle=not sampled.any())
        share = float(sampled @ learned) / power
        rest = sampled - share * learned
        error = math.sqrt(float(rest @ rest) / len(rest) / power)
        return cls(share, error, float(np.abs(learned).mean()), idle=not sampled.any())


class AnswerProbe:
    """Sends weights to samplers, and probes those that cannot prove that they hold them."""

    def __init__(
        self,
        samplers: SamplerPool,
        learner: LearnerPool,
        prompts: Callable[[int], list[tuple[tuple[int, ...], tuple[str, ...]]]],
        params: SamplingParams,
        *,
        limit: float | None,
        gap_accepted: bool,
        seed: int,
    ) -> None:
        """``prompts(n)``: n prompts as token ids with their pictures; called once. ``limit`` [nats]: the distance
        that rounding stays below (`rollout.gap_limit`); None: more than rounding is expected, and nothing is probed.
        ``gap_accepted``: a larger one ends no run."""
        self._samplers, self._learner, self._prompts = samplers, learner, prompts
        self._params, self._limit, self._seed, self._gap_accepted = params, limit, seed, gap_accepted
        self._requests: list[SampleRequest] = []
        self._before: dict[int, list[_Answer]] = {}
        """Of each sampler the answers that later ones are compared with."""

    def send(self, version: int) -> Metrics:
        """Send the learner's weights as ``version``.

        :raises OtherPolicy: a sampler has other weights, by their values or by its answers.
        """
        figures = self._samplers.send_weights(version)
        if self._samplers.unproved is None or self._limit is None:
            return figures
        return {**figures, **self._probe(version, self._limit)}

    @property
    def unproved(self) -> str | None:
        """Describe the weights that cannot be read, and what is done instead; None: all can be read."""
        if self._samplers.unproved is None:
            return None
        watched = "Their versions and train/sampler_logprob_gap are watched instead"
        if self._limit is not None:
            watched += f", and at every update between two batches their answers to {PROMPTS} fixed prompts"
        return f"{self._samplers.unproved}. {watched}"

    def _probe(self, version: int, limit: float) -> Metrics:
        began = time.perf_counter()
        answers = self._answers()
        if not answers:
            return {}
        far = {rank: Distance.of(completions) for rank, completions in answers.items()}
        problems = [
            f"{self._name(rank)}: its log-probabilities of its own tokens differ from the learner's by "
            f"{distance.mean:.3g} nats a token, where {limit:g} is expected at most"
            for rank, distance in far.items()
            if not self._gap_accepted and distance.mean - _SURE * distance.error > limit
        ]
        shares: list[float] = []
        for rank, completions in answers.items():
            change = self._change(rank, completions, limit)
            if change is None:
                continue
            shares.append(change.share)
            if change.share + _SURE * change.error < _HALF:
                problems.append(
                    f"{self._name(rank)}: the learner's log-probabilities of the same tokens changed by "
                    f"{change.size:.3g} nats, and the sampler's show {max(0.0, change.share):.0%} of that"
                )
        if problems:
            raise OtherPolicy(
                f"weights {version} were sent, and answers to fixed prompts are not those of these weights:\n  "
                + "\n  ".join(problems)
                + "\nThe run ends here. With a sampler of your own, see that its load() copies every tensor into the "
                "model that computes. A sampler of lower precision needs a higher rollout.gap_limit; "
                "rollout.verify_weights: false turns this check off."
            )
        figures = {"answer_gap": max(distance.mean for distance in far.values())}
        if shares:
            figures["answer_change"] = min(shares)
        return {**figures, "probe_s": time.perf_counter() - began}

    def _name(self, rank: int) -> str:
        return f"{self._samplers.group.name} {rank}"

    def _change(self, rank: int, given: list[_Answer], limit: float) -> Change | None:
        """Measure the change since the answers before; None if it is too small yet. Answers are kept until it is
        not."""
        before = self._before.setdefault(rank, given)
        change = Change.between(before, given)
        if change is not None:
            rounding = Distance.of(before).mean * (1.0 if change.idle else _CLEAR)
            if change.size < max(_FLOOR * limit, rounding):
                return None
        self._before[rank] = given
        return change

    def _answers(self) -> dict[int, list[_Answer]]:
        """Collect the answers of each sampler to all prompts; none of those that are amid a batch."""
        self._requests = self._requests or self._fixed_requests()
        replies: list[list[Completion]] = self._samplers.call("answer", self._requests)
        for rank, completions in enumerate(replies):
            for completion in completions:
                self._samplers.require_current(rank, completion)
        # Samplers with the same weights answer alike: what is the same is computed once.
        rows = list(dict.fromkeys(_row(one) for completions in replies for one in completions if len(one.token_ids)))
        if not rows:
            return {}
        logprobs = self._learner.score(self._batch(rows)).logprobs.double()
        learned = {row: logprobs[index, : len(row[1])].numpy() for index, row in enumerate(rows)}
        return {
            rank: [
                _Answer(_row(one)[1], one.logprobs.array.astype(np.float64), learned.get(_row(one), np.zeros(0)))
                for one in completions
            ]
            for rank, completions in enumerate(replies)
            if any(len(one.token_ids) for one in completions)
        }

    def _fixed_requests(self) -> list[SampleRequest]:
        params = replace(self._params, max_new_tokens=min(TOKENS, self._params.max_new_tokens))
        stream = stream_seed(self._seed, "answer probe")
        return [
            SampleRequest(index, prompt, 1, params, (stream, index), pictures=pictures)
            for index, (prompt, pictures) in enumerate(self._prompts(PROMPTS))
        ]

    def _batch(self, rows: Sequence[tuple[int, tuple[int, ...]]]) -> Batch:
        """Rows (index of the prompt, response) as a batch whose rewards mean nothing."""
        requests = [self._requests[position] for position, _ in rows]
        prompts, lengths = _padded([request.prompt_ids for request in requests])
        pictures = [request.pictures for request in requests]
        actions, counts = _padded([tokens for _, tokens in rows])
        mask = torch.arange(actions.shape[1]) < counts[:, None]
        return Batch(
            inputs=TextInputs(prompts, lengths, counts, pictures=picture_column(pictures) if any(pictures) else None),
            actions=actions,
            mask=mask,
            rollout_logprobs=torch.zeros(mask.shape),
            rewards=torch.zeros(len(rows)),
            group_ids=torch.arange(len(rows)),
            policy_version=torch.zeros(mask.shape, dtype=torch.int32),
        )


def _row(completion: Completion) -> tuple[int, tuple[int, ...]]:
    """Return the number of its prompt, and its tokens."""
    return completion.request_id, tuple(completion.token_ids.array.tolist())


def _padded(rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """(int64 [n, longest], lengths [n])."""
    columns = [torch.tensor(list(row), dtype=torch.int64) for row in rows]
    return pad_sequence(columns, batch_first=True), torch.tensor([len(row) for row in rows])


def _alike(one: Sequence[int], other: Sequence[int]) -> int:
    """How many tokens both begin with."""
    pairs = zip(one, other, strict=False)
    return next((index for index, (left, right) in enumerate(pairs) if left != right), min(len(one), len(other)))
