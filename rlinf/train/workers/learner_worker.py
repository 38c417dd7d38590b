"""A rank of the learner as the driver calls it."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Concatenate, ParamSpec, TypeVar

import torch
from torch import Tensor

from rlinf.algorithms.advantages.distributed import RowStatistic, row_statistics, with_advantages
from rlinf.algorithms.statistics import gaps
from rlinf.base.heap import FreedMemory
from rlinf.cluster.weights.sender import WeightSender
from rlinf.data.advantage_spec import PreparedRows
from rlinf.data.batch import Batch
from rlinf.data.messages import Metrics, PolicyOutput, WeightForm, WeightUpdate
from rlinf.data.ragged import RaggedRows
from rlinf.data.shards import DataParallelRank, RankBatch
from rlinf.data.wire import ragged_rows
from rlinf.interfaces import Learner
from rlinf.learners.scorer import Scorer
from rlinf.models.attention_kernels import use_kernels_of_any_length
from rlinf.models.decision_rule import DecisionRule

Given = ParamSpec("Given")
Value = TypeVar("Value")


def _awake(method: Callable[Concatenate[Learner, Given], Value]) -> Callable[Concatenate[LearnerWorker, Given], Value]:
    """Build the same method of the worker: it wakes its learner first."""

    @functools.wraps(method)
    def call(self: LearnerWorker, /, *args: Given.args, **options: Given.kwargs) -> Value:
        own: Callable[Given, Value] = getattr(self.wake(), method.__name__)
        return own(*args, **options)

    return call


class LearnerWorker(WeightSender):
    """A rank of any learner. A call wakes a learner that sleeps; reading its weights leaves the rest of it asleep."""

    def __init__(
        self,
        learner: Learner,
        *,
        rank: int,
        bucket_bytes: int | None = None,
        teacher: Scorer | None = None,
        rule: DecisionRule | None = None,
    ) -> None:
        """``bucket_bytes``: the size of a part of the weights; None sends all that a rank gives at once. ``teacher``:
        this rank's copy, which stays on the device while the learner sleeps. ``rule``: that of a policy that reads
        observations, if it has one."""
        super().__init__(rank)
        use_kernels_of_any_length()
        self._asleep = False
        self._learner = learner
        self._bucket_bytes = bucket_bytes
        self._teacher = teacher
        self._rule = rule
        self._freed = FreedMemory()

    start = _awake(Learner.start)
    evaluate = _awake(Learner.evaluate)
    refresh_reference = _awake(Learner.refresh_reference)
    save = _awake(Learner.save)
    load = _awake(Learner.load)
    init_from = _awake(Learner.init_from)
    export = _awake(Learner.export)

    def wake(self) -> Learner:
        """Return the learner, awake."""
        if self._asleep:
            self._learner.wake()
            self._asleep = False
        return self._learner

    def sleep(self, *, keep_weights: bool) -> Metrics:
        """Move to the host what ``learner.offload`` names."""
        self._asleep = True
        return self._learner.sleep(keep_weights=keep_weights)

    def data_rank(self) -> DataParallelRank:
        """Which share of the rows this rank works on, and how shares are cut."""
        return self._learner.data_rank

    def decision_rule(self) -> DecisionRule | None:
        """How the driver may divide rows with observations; None: this learner has to have all."""
        return self._rule

    @property
    def _scorer(self) -> Scorer:
        if self._teacher is None:
            raise RuntimeError("this run has no teacher in the learner's ranks")
        return self._teacher

    def teacher_place(self) -> DataParallelRank:
        """Return the same of the rows that the teacher scores."""
        return self._scorer.data_rank

    def teach(self, batch: Batch | RankBatch) -> tuple[Tensor, PolicyOutput]:
        """(rows [B'], the teacher's log-probabilities [B', T]) of this rank's share."""
        rows, logprobs = self._scorer.score(batch)
        return rows, PolicyOutput(logprobs)

    def score(self, batch: Batch | RankBatch) -> tuple[Tensor, PolicyOutput]:
        """As `evaluate`, and of a learner that sleeps the weights alone are woken."""
        if self._asleep:
            self._learner.wake(weights_only=True)
        return self._learner.evaluate(batch)

    def keep(
        self, batch: Batch | RankBatch, *, names: Sequence[str], reference: bool = False
    ) -> tuple[tuple[Tensor, Tensor], RaggedRows]:
        """((rows [B'], the :func:`gaps` of each), log-probabilities and values as the columns ``names``) of this rank's
        share of a batch of text."""
        rows, output = self.wake().evaluate(batch, reference=reference)
        held = (batch.batch if isinstance(batch, RankBatch) else batch).select(rows)
        columns = dict(zip(names, (output.logprobs, output.values), strict=False))
        return (rows, gaps(held, output.logprobs)), ragged_rows(held, columns)

    def row_statistics(self, batch: PreparedRows | RankBatch, *, statistic: RowStatistic) -> tuple[Tensor, Tensor]:
        """Return (positions [B'] in this rank's rows, `distributed.row_statistics` of each [B', 3])."""
        own = batch.batch if isinstance(batch, RankBatch) else batch.rows.fetch()
        assert batch.pending is not None
        return torch.arange(own.num_rows), row_statistics(own, batch.pending, statistic)

    def update(self, batch: Batch | PreparedRows | RankBatch, *, step: int) -> Metrics:
        """Take all optimiser steps of an iteration; pending advantages are computed first."""
        if isinstance(batch, PreparedRows):
            batch = with_advantages(batch.rows.fetch(), batch.pending)
        elif isinstance(batch, RankBatch) and batch.pending is not None:
            own = with_advantages(batch.batch, batch.pending)
            batch = dataclasses.replace(batch, batch=own, pending=None)
        metrics = self.wake().update(batch, step=step)
        self._freed.release_to_os()
        return metrics

    def scale_lr(self, factor: float) -> None:
        """Multiplies the learning rates that the schedule gives, from the next update on."""
        self._learner.scale_lr(factor)

    def has_adapters(self) -> bool:
        return self._learner.has_adapters()

    def weight_sources(self, *, form: WeightForm = "merged") -> list[int]:
        return self._learner.weight_sources(self._bucket_bytes, form=form)

    def weights(self, *, version: int, part: int = 0, form: WeightForm = "merged") -> WeightUpdate:
        if self._asleep:
            self._learner.wake(weights_only=True)
        return self._learner.weights(version=version, part=part, bucket_bytes=self._bucket_bytes, form=form)
