"""The ranks of a learner as one object."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rlinf.batch_share import CommonFacts, RowFacts
from rlinf.cluster import Cluster, WorkerError, WorkerGroup
from rlinf.learners.partition import DataPlace
from rlinf.row_records import RecordLayout
from rlinf.train.workers.learner_worker import LearnerWorker
from rlinf.train.workers.row_plan import RowPlan
from rlinf.types import Batch, Metrics, PolicyOutput, WeightUpdate

_EVALUATED = ("actions", "mask")
_LEARNED = (*_EVALUATED, "rollout_logprobs", "old_logprobs", "ref_logprobs", "advantages")
_OF_A_CRITIC = ("old_values", "returns")
"""The columns that ranks read."""


class LearnerPool:
    """The ranks of a learner as one."""

    def __init__(
        self, group: WorkerGroup, cluster: Cluster, *, offload: bool = False, plan: RowPlan | None = None
    ) -> None:
        """Ranks are :class:`LearnerWorker`. ``offload``: they have something to move in sleep. ``plan``: how they cut
        batches, so that each is sent its own rows; without it all are sent every row."""
        self.group, self.cluster = group, cluster
        self._offload = offload
        self._plan = plan if group.size > 1 else None
        self._stage = plan.stages[0].name if plan is not None else ""

    def sleep(self, *, keep_weights: bool = False) -> Metrics:
        """Frees device memory for samplers; whatever is asked of the learner next wakes it. The largest figures."""
        if not self._offload:
            return {}
        numbers = self.group.call(LearnerWorker.sleep, keep_weights=keep_weights)
        return {name: max(number[name] for number in numbers) for name in numbers[0]}

    def evaluate(self, batch: Batch, *, reference: bool = False) -> PolicyOutput:
        """Log-probabilities and values [B, T] of all rows."""
        plan = self._plan
        cut = None if plan is None else lambda facts: plan.evaluated(facts, self._data_size)
        sent = self._sent(batch, _EVALUATED, cut)
        return self._all_rows(self.group.call("evaluate", per_rank=sent, reference=reference), batch, "evaluate")

    def teach(self, batch: Batch) -> Tensor:
        """The teacher's log-probabilities [B, T] of all rows."""
        parts = self.group.call(LearnerWorker.teach, self.cluster.share(_for_ranks(batch)))
        return self._all_rows(parts, batch, "teach").logprobs

    def _all_rows(self, parts: Sequence[tuple[Tensor, PolicyOutput]], batch: Batch, method: str) -> PolicyOutput:
        """The shares of the ranks in the order of the batch's rows."""
        rows = torch.cat([part[0] for part in parts])
        order = torch.argsort(rows)

        def joined(name: str) -> Tensor | None:
            columns = [getattr(part[1], name) for part in parts]
            return None if any(column is None for column in columns) else torch.cat(columns)[order]

        logprobs = joined("logprobs")
        if logprobs is None or len(rows) != batch.num_rows:
            raise WorkerError("the learner left rows out", group=self.group.name, rank=0, method=method)
        return PolicyOutput(logprobs, values=joined("values"))

    def update(self, batch: Batch, *, step: int) -> Metrics:
        """All optimiser steps of one batch, on every rank."""
        return self.begin_update(batch, step=step)()

    def begin_update(self, batch: Batch, *, step: int) -> Callable[[], Metrics]:
        """The same without waiting: what is returned waits for it."""
        plan, stage = self._plan, self._stage

        def rows(facts: RowFacts) -> list[Tensor] | None:
            assert plan is not None
            return plan.updated(facts, self._data_size, stage=stage, step=step)

        columns = _LEARNED if batch.old_values is None else (*_LEARNED, *_OF_A_CRITIC)
        sent = self._sent(batch, columns, None if plan is None else rows)
        handles = self.group.submit(LearnerWorker.update.__name__, per_rank=sent, step=step)
        return lambda: self.group.gather(handles)[0]

    @functools.cached_property
    def _data_places(self) -> list[DataPlace]:
        """Which share of the rows each rank works on."""
        return self.group.call(LearnerWorker.data_place)

    @property
    def _data_size(self) -> int:
        return self._data_places[0].size

    def _sent(
        self, batch: Batch, columns: Collection[str], cut: Callable[[RowFacts], list[Tensor] | None] | None
    ) -> list[tuple[Any, ...]]:
        """What each rank is given: the ``columns`` of its rows and the facts of all, or the whole batch."""
        plan = self._plan
        facts = None if plan is None else plan.facts(batch)
        rows = None if cut is None or facts is None else cut(facts)
        if facts is None or rows is None:
            return [(self.cluster.share(_for_ranks(batch)),)] * self.group.size
        layout = RecordLayout.of(batch, columns)
        records = layout.records(batch, torch.cat(rows)).split([len(one) for one in rows])
        about = self.cluster.share(CommonFacts(facts, layout))
        held = [(self.cluster.share(part), about, one) for part, one in zip(records, rows, strict=True)]
        return [held[place.index] for place in self._data_places]

    def weights_in_parts(self, *, version: int) -> Iterator[WeightUpdate]:
        """The weights, a part at a time where the ranks have a bucket size."""
        for part in range(self.group.call(LearnerWorker.weight_parts)[0]):
            yield self.group.call(LearnerWorker.weights, version=version, part=part)[0]

    def start(self, stage: str) -> None:
        self._stage = stage
        self.group.call(LearnerWorker.start, stage)

    def scale_lr(self, factor: float) -> None:
        """Multiplies the learning rates that the schedule gives, from the next update on."""
        self.group.call(LearnerWorker.scale_lr, factor)

    def refresh_reference(self, *, keep: float = 0.0) -> None:
        """Moves the reference policy to the current one, but for the share ``keep``."""
        self.group.call(LearnerWorker.refresh_reference, keep=keep)

    def save(self, folder: Path) -> None:
        self.group.call(LearnerWorker.save, folder)

    def load(self, folder: Path) -> None:
        self.group.call(LearnerWorker.load, folder)

    def init_from(self, folder: Path, *, optimizer: bool) -> None:
        """Begins the stage again with the weights of another run's checkpoint, and its optimiser's state if asked."""
        self.group.call(LearnerWorker.init_from, folder, optimizer=optimizer)

    def export(self, folder: Path) -> None:
        self.group.call(LearnerWorker.export, folder)


def _for_ranks(batch: Batch) -> Batch:
    """What ranks read of a batch: no texts."""
    return batch.replace(metadata={}, domains=None)
