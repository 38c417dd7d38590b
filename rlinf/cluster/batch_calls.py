"""Calls about a batch to ranks that divide its rows: each is sent its own, and what they return is joined."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch
from torch import Tensor

from rlinf.batch_share import BatchShare, CommonFacts, RowFacts
from rlinf.cluster.api import Assembled, Cluster, Handle, WorkerGroup
from rlinf.cluster.errors import WorkerError
from rlinf.learners.partition import DataPlace
from rlinf.row_records import RecordLayout
from rlinf.types import Batch, PolicyOutput

Cut = Callable[[RowFacts, int], list[Tensor] | None]
"""From the facts of all rows and the number of shares: the rows of each share; None where each has to have all."""


class BatchCalls:
    """The ranks of a learner behind calls that are about one batch. What is in a column is not looked at."""

    def __init__(self, group: WorkerGroup, cluster: Cluster, facts_of: Callable[[Batch], RowFacts] | None) -> None:
        """``facts_of``: what rows are cut by; without it all ranks are sent every row."""
        self._group, self._cluster = group, cluster
        self._facts_of = facts_of if group.size > 1 else None

    def submit(
        self,
        method: Callable[..., Any],
        batch: Batch,
        cut: Cut | None = None,
        *,
        columns: Collection[str] = (),
        **options: Any,
    ) -> list[Handle]:
        """``method(batch, **options)``, a method of the workers' class, on every rank, without waiting.

        A rank is given a :class:`BatchShare`, the ``columns`` of the rows that ``cut`` gives it, or the whole batch.
        """
        return self._group.submit(method.__name__, per_rank=self._sent(batch, cut, columns), **options)

    def _sent(self, batch: Batch, cut: Cut | None, columns: Collection[str]) -> list[tuple[Any]]:
        facts = None if self._facts_of is None or cut is None else self._facts_of(batch)
        rows = None if facts is None or cut is None else cut(facts, self._places[0].size)
        if facts is None or rows is None:
            return [(self._cluster.share(batch.replace(metadata={}, domains=None)),)] * self._group.size
        layout = RecordLayout.of(batch, columns)
        common = self._cluster.share(CommonFacts(facts.narrow(), layout, batch.estimation))
        records = layout.records(batch, rows)
        held = [
            Assembled(_share, (self._cluster.share(part), common, one)) for part, one in zip(records, rows, strict=True)
        ]
        return [(held[place.index],) for place in self._places]

    @functools.cached_property
    def _places(self) -> list[DataPlace]:
        """Which share of the rows each rank works on."""
        return self._group.call("data_place")

    def joined(self, batch: Batch, handles: Sequence[Handle]) -> Tensor:
        """The (rows, numbers [B', ...]) of all ranks, in the order of the batch's rows. Several may have the same."""
        parts: list[tuple[Tensor, Tensor]] = self._group.gather(handles)
        found = torch.zeros(batch.num_rows, *parts[0][1].shape[1:], dtype=parts[0][1].dtype)
        for rows, numbers in parts:
            found[rows] = numbers
        return found

    def outputs(self, batch: Batch, handles: Sequence[Handle]) -> PolicyOutput:
        """The (rows, output) of all ranks, in the order of the batch's rows."""
        parts: list[tuple[Tensor, PolicyOutput]] = self._group.gather(handles)
        rows = torch.cat([part[0] for part in parts])
        order = torch.argsort(rows)

        def joined(name: str) -> Tensor | None:
            columns = [getattr(part[1], name) for part in parts]
            return None if any(column is None for column in columns) else torch.cat(columns)[order]

        logprobs = joined("logprobs")
        if logprobs is None or len(rows) != batch.num_rows:
            raise WorkerError("the learner left rows out", group=self._group.name, rank=0, method=handles[0].method)
        return PolicyOutput(logprobs, values=joined("values"))


def _share(records: Tensor, common: CommonFacts, rows: Tensor) -> BatchShare:
    """The rows of a batch, from their records in shared memory."""
    return BatchShare(common.layout.batch(records).replace(estimation=common.estimation), common.rows.wide(), rows)
