"""The ranks of a learner as one object."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Concatenate, ParamSpec

import torch
from torch import Tensor

from rlinf.algorithms.advantages import distributed
from rlinf.algorithms.advantages.distributed import RowStatistic, row_statistics
from rlinf.cluster import Cluster, WorkerGroup
from rlinf.cluster.batch_calls import BatchCalls
from rlinf.data import weight_sources
from rlinf.data.advantage_spec import PreparedRows, Rows
from rlinf.data.batch import Batch
from rlinf.data.messages import Metrics, PolicyOutput, WeightUpdate
from rlinf.data.remote_rows import RemoteRows
from rlinf.learners.step_plan import RowFacts, division, evaluation_plan
from rlinf.train.workers.kept_values import RemoteRowStore
from rlinf.train.workers.learner_worker import LearnerWorker
from rlinf.train.workers.row_plan import EVALUATED, KEPT, RowPlan

Given = ParamSpec("Given")


def _on_every_rank(method: Callable[Concatenate[Any, Given], None]) -> Callable[Concatenate[LearnerPool, Given], None]:
    """Build the same method of the pool: it is called on every rank."""

    @functools.wraps(method)
    def call(self: LearnerPool, /, *args: Given.args, **options: Given.kwargs) -> None:
        self.group.call(method, *args, **options)

    return call


class LearnerPool:
    """The ranks of a learner as one."""

    def __init__(
        self,
        group: WorkerGroup,
        cluster: Cluster,
        *,
        offload: bool = False,
        plan: RowPlan | None = None,
        teacher_facts: Callable[[Rows], RowFacts] | None = None,
    ) -> None:
        """Ranks are :class:`LearnerWorker`. ``offload``: they have something to move in sleep. ``plan``: how they cut
        batches, so that each is sent its own rows; without it all are sent every row. ``teacher_facts``: what the
        teacher next to the learner cuts batches by, likewise."""
        self.group = group
        self._offload, self._plan = offload, plan
        self._stage = plan.stages[0].name if plan is not None else ""
        self._calls = BatchCalls(group, cluster, None if plan is None else plan.facts, LearnerWorker.data_rank)
        self._teacher_calls = BatchCalls(group, cluster, teacher_facts, LearnerWorker.teacher_place)

    scale_lr = _on_every_rank(LearnerWorker.scale_lr)
    refresh_reference = _on_every_rank(LearnerWorker.refresh_reference)
    save = _on_every_rank(LearnerWorker.save)
    load = _on_every_rank(LearnerWorker.load)
    init_from = _on_every_rank(LearnerWorker.init_from)
    export = _on_every_rank(LearnerWorker.export)

    def start(self, stage: str) -> None:
        """Begins a stage, "sft" or "train"."""
        self._stage = stage
        self.group.call(LearnerWorker.start, stage)

    def sleep(self, *, keep_weights: bool = False) -> Metrics:
        """Free device memory for samplers; the learner's next call wakes it. Return the largest figures."""
        if not self._offload:
            return {}
        numbers = self.group.call(LearnerWorker.sleep, keep_weights=keep_weights)
        return {name: max(number[name] for number in numbers) for name in numbers[0]}

    def evaluate(self, batch: Batch, *, reference: bool = False) -> PolicyOutput:
        """Log-probabilities and values [B, T] of all rows."""
        call = self._calls.submit(
            LearnerWorker.evaluate, batch, evaluation_plan, columns=EVALUATED, reference=reference
        )
        return call.outputs()

    def score(self, batch: Batch) -> PolicyOutput:
        """Evaluate as :meth:`evaluate`, while samplers have the device: what follows from the weights alone."""
        return self._calls.submit(LearnerWorker.score, batch, evaluation_plan, columns=EVALUATED).outputs()

    def evaluate_remote(
        self, rows: RemoteRows, names: Sequence[str], *, reference: bool = False
    ) -> tuple[RemoteRows, Tensor]:
        """As :meth:`evaluate` for rows that are elsewhere: log-probabilities and values stay with the ranks as the
        columns ``names``. The second result has the :func:`gaps` [B, 2] of rows between these and the samplers'.
        """
        call, kept = self._calls.submit_remote(
            LearnerWorker.keep, rows, evaluation_plan, columns=KEPT, names=names, reference=reference
        )
        stored: list[tuple[RemoteRowStore, int] | None] = [None] * rows.num_rows
        every = torch.zeros(rows.num_rows, 2, dtype=torch.float64)
        for rank, (columns, (own, distances)) in enumerate(zip(kept, call.numbered(), strict=True)):
            store = RemoteRowStore(self.group, rank)
            store.add(columns, len(own))
            every[own] = distances
            for number, row in enumerate(own.tolist()):
                stored[row] = (store, number)
        call.require_complete(torch.tensor([stored_at is None for stored_at in stored]))
        return rows.with_columns(dict.fromkeys(names, torch.float32), stored), every

    def teach(self, batch: Batch) -> Tensor:
        """Compute the teacher's log-probabilities [B, T] of all rows."""
        call = self._teacher_calls.submit(LearnerWorker.teach, batch, evaluation_plan, columns=EVALUATED)
        return call.outputs().logprobs

    @property
    def divide_rows(self) -> bool:
        """Whether there are several ranks, each with rows of its own."""
        return self._calls.divides

    def collect_statistics(self, prepared: PreparedRows, statistic: RowStatistic) -> Tensor:
        """Statistics [B, 3] of the rewards or advantages of all rows, from the ranks that compute them
        (`distributed.row_statistics`). Rows that are here and not divided are counted here."""
        if isinstance(prepared.rows, Batch) and not self.divide_rows:
            return row_statistics(prepared.rows, prepared.pending, statistic)
        columns = distributed.columns(prepared)
        call = self._calls.submit(
            LearnerWorker.row_statistics, prepared, division, columns=columns, statistic=statistic
        )
        return call.joined()

    def update(self, batch: Rows, *, step: int) -> Metrics:
        """All optimiser steps of one batch, on every rank."""
        return self.begin_update(batch, step=step)()

    def begin_update(self, batch: Rows, *, step: int) -> Callable[[], Metrics]:
        """Begin the same without waiting: what is returned waits for it."""
        plan, stage = self._plan, self._stage
        if plan is None or not self._calls.divides:
            call = self._calls.submit(LearnerWorker.update, batch, step=step)
        else:
            call = self._calls.submit(
                LearnerWorker.update,
                plan.learned(batch, stage=stage),
                functools.partial(plan.updated, stage=stage, step=step),
                columns=plan.columns(stage, batch),
                observed=plan.observed(batch),
                step=step,
            )
        handles = call.handles  # not the batch, which its owner may free meanwhile
        return lambda: self.group.gather(handles)[0]

    def weights_in_parts(self, *, version: int) -> Iterator[WeightUpdate]:
        """Yield the weights; if the ranks have a bucket size, in parts, each made of parts of different ranks."""
        rounds = weight_sources.rounds(self.group.call(LearnerWorker.weight_sources)[0])
        for number, parts in enumerate(rounds):
            updates = self.group.call(LearnerWorker.own_weights, version=version, parts=parts)
            tensors = {name: tensor for update in updates for name, tensor in update.tensors.items()}
            yield WeightUpdate(version, tensors, number, len(rounds))
