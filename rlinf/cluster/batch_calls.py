"""Calls about a batch to ranks that divide its rows: each is sent its own, and what they return is joined."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from rlinf.batch_share import BatchShare, CommonFacts, Observed, RowFacts
from rlinf.cluster.api import Assembled, Cluster, Handle, WorkerGroup
from rlinf.cluster.errors import WorkerError
from rlinf.learners.partition import DataPlace
from rlinf.row_records import RecordLayout
from rlinf.types import OPTIONAL_COLUMNS, Batch, ObservationInputs, PolicyOutput

Cut = Callable[[RowFacts, int], list[Tensor] | None]
"""From the facts of all rows and the number of shares: the rows of each share; None where each has to have all."""


class BatchCalls:
    """The ranks of a learner behind calls that are about one batch. What is in a column is not looked at."""

    def __init__(self, group: WorkerGroup, cluster: Cluster, facts_of: Callable[[Batch], RowFacts] | None) -> None:
        """``facts_of``: what rows are cut by; without it all ranks are sent every row."""
        self._group, self._cluster = group, cluster
        self._facts_of = facts_of if group.size > 1 else None

    @property
    def divides(self) -> bool:
        """Whether there is anything to divide rows among, and by."""
        return self._facts_of is not None

    def submit(
        self,
        method: Callable[..., Any],
        batch: Batch,
        cut: Cut | None = None,
        *,
        columns: Collection[str] = (),
        observed: Observed | None = None,
        **options: Any,
    ) -> list[Handle]:
        """``method(batch, **options)``, a method of the workers' class, on every rank, without waiting.

        A rank is given a :class:`BatchShare`, the ``columns`` of the rows that ``cut`` gives it with ``observed``, or
        the whole batch. Leaves of observations that lie apart go to it from where they lie.
        """
        return self._group.submit(method.__name__, per_rank=self._sent(batch, cut, columns, observed), **options)

    def _sent(
        self, batch: Batch, cut: Cut | None, columns: Collection[str], observed: Observed | None
    ) -> list[tuple[Any]]:
        facts = None if self._facts_of is None or cut is None else self._facts_of(batch)
        rows = None if facts is None or cut is None else cut(facts, self._places[0].size)
        if facts is None or rows is None:
            return [(self._whole(batch),)] * self._group.size
        if isinstance(batch.inputs, ObservationInputs):
            common = self._cluster.share(CommonFacts(facts.narrow(), None, batch.estimation, observed))
            slim = _slim(batch, columns)
            held = self._with_leaves(batch.inputs, [slim.select(own) for own in rows], common, rows)
        else:
            layout = RecordLayout.of(batch, columns)
            common = self._cluster.share(CommonFacts(facts.narrow(), layout, batch.estimation))
            held = [
                Assembled(_of_records, (self._cluster.share(part), common, own))
                for part, own in zip(layout.records(batch, rows), rows, strict=True)
            ]
        return [(held[place.index],) for place in self._places]

    def _whole(self, batch: Batch) -> Any:
        """All rows, as every rank is given them."""
        slim, inputs = batch.replace(metadata={}, domains=None), batch.inputs
        if not isinstance(inputs, ObservationInputs) or inputs.places is None:
            return self._cluster.share(slim)
        known = self._cluster.share(slim.replace(inputs=replace(inputs, sources=())))
        return Assembled(_with_all_leaves, (known, *(source.whole() for source in inputs.sources)))

    def _with_leaves(
        self, inputs: ObservationInputs, parts: Sequence[Batch], common: Any, rows: Sequence[Tensor]
    ) -> list[Assembled]:
        """The shares of a batch with ``inputs``, each with the leaves of its own rows."""
        bare = [part.replace(inputs=replace(ObservationInputs.of(part.inputs), sources=())) for part in parts]
        wanted = [ObservationInputs.of(part.inputs).wanted() for part in bare]
        # The pieces of a source are cut together, and all sources side by side.
        asked: dict[int, list[Tensor]] = {}
        for share in wanted:
            for number, own in share:
                asked.setdefault(number, []).append(own)
        cut = {number: inputs.sources[number].pieces(own) for number, own in asked.items()}
        pieces = {number: iter(wait()) for number, wait in cut.items()}
        leaves = [[next(pieces[number]) for number, _ in share] for share in wanted]
        return [
            Assembled(_of_rows, (self._cluster.share(part), common, numbers, *own))
            for part, numbers, own in zip(bare, rows, leaves, strict=True)
        ]

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


def _slim(batch: Batch, columns: Collection[str]) -> Batch:
    """The batch without the columns that no rank reads and a batch can be without."""
    dropped = {name for name in OPTIONAL_COLUMNS if name not in columns}
    return batch.replace(metadata={}, domains=None, estimation=None, **dict.fromkeys(dropped))


def _of_records(records: Tensor, common: CommonFacts, rows: Tensor) -> BatchShare:
    """The rows of a batch of text, from their records in shared memory."""
    assert common.layout is not None
    return _share(common.layout.batch(records), common, rows)


def _of_rows(part: Batch, common: CommonFacts, rows: Tensor, *leaves: Mapping[str, Tensor]) -> BatchShare:
    """Rows with observations, some of which were apart."""
    return _share(part.replace(inputs=ObservationInputs.of(part.inputs).with_leaves(leaves)), common, rows)


def _share(held: Batch, common: CommonFacts, rows: Tensor) -> BatchShare:
    return BatchShare(held.replace(estimation=common.estimation), common.rows.wide(), rows, common.observed)


def _with_all_leaves(batch: Batch, *sources: Mapping[str, Tensor]) -> Batch:
    """All rows of a batch, with the leaves that were apart."""
    return batch.replace(inputs=ObservationInputs.of(batch.inputs).with_rows_of(sources))
