"""Calls about a batch to ranks that divide its rows: each is sent its own, and what they return is joined."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rlinf.cluster.api import Assembled, Cluster, Handle, WorkerGroup
from rlinf.cluster.errors import WorkerError
from rlinf.data.batch import OPTIONAL_COLUMNS, Batch
from rlinf.data.inputs import ObservationInputs, TextInputs
from rlinf.data.messages import PolicyOutput
from rlinf.data.ragged import RaggedRows
from rlinf.data.shards import BroadcastFacts, DataParallelRank, NormalizerUpdate, RankBatch, StepShard
from rlinf.data.wire import RowFormat
from rlinf.learners.step_plan import BatchPlan, OwnRows, RowFacts

Cut = Callable[[RowFacts, DataParallelRank], BatchPlan | None]
"""From the facts of all rows and how shares are cut: what each share computes; None where each has to have all rows."""


@dataclass(frozen=True)
class BatchCall:
    """A call about ``batch`` under way on all ranks."""

    group: WorkerGroup
    handles: Sequence[Handle]
    batch: Batch
    rows: Sequence[Tensor] | None
    """Of each rank, the numbers [b] of the rows that it was sent; None: all have the whole batch."""

    def results(self) -> list[Any]:
        """The values that ranks return, in their order."""
        return self.group.gather(self.handles)

    def joined(self) -> Tensor:
        """The numbers [B, ...] in the order of the batch, of ranks that return (rows, numbers [B', ...]).

        0 for a row that none returns; several ranks may return the same one.
        """
        return self._joined(self.numbered())

    def outputs(self) -> PolicyOutput:
        """Log-probabilities and values [B, T] in the order of the batch, of ranks that return (rows, output).

        :raises WorkerError: a row that has a valid position was left out.
        """
        parts = self.numbered()
        left_out = torch.ones(self.batch.num_rows, dtype=torch.bool)
        for rows, _ in parts:
            left_out[rows] = False
        self.require_complete(left_out)
        values = [(rows, output.values) for rows, output in parts]
        missing = any(column is None for _, column in values)
        logprobs = self._joined([(rows, output.logprobs) for rows, output in parts])
        return PolicyOutput(logprobs, values=None if missing else self._joined(values))

    def require_complete(self, left_out: Tensor) -> None:
        """:raises WorkerError: a row that has a valid position is ``left_out`` [B]."""
        if bool(self.batch.valid_counts[left_out].any()):
            method = self.handles[0].method
            raise WorkerError("the learner left rows out", group=self.group.name, rank=0, method=method)

    def numbered(self) -> list[tuple[Tensor, Any]]:
        """The (rows, value) of each rank, where rows go by their numbers in the batch."""
        found: list[tuple[Tensor, Any]] = self.results()
        if self.rows is None:
            return found
        return [(sent[places.long()], said) for sent, (places, said) in zip(self.rows, found, strict=True)]

    def _joined(self, parts: Sequence[tuple[Tensor, Any]]) -> Tensor:
        first = parts[0][1]
        found = torch.zeros(self.batch.num_rows, *first.shape[1:], dtype=first.dtype)
        for rows, numbers in parts:
            found[rows] = numbers
        return found


class BatchCalls:
    """The ranks of a learner behind calls that are about one batch. What is in a column is not looked at."""

    def __init__(
        self,
        group: WorkerGroup,
        cluster: Cluster,
        facts_of: Callable[[Batch], RowFacts] | None,
        place_of: Callable[..., DataParallelRank],
    ) -> None:
        """``facts_of``: what rows are cut by; without it all ranks are sent every row. ``place_of``: the method of the
        workers' class that says which share of the rows a rank works on, and how all are cut."""
        self._group, self._cluster, self._place_of = group, cluster, place_of
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
        observed: NormalizerUpdate | None = None,
        **options: Any,
    ) -> BatchCall:
        """``method(batch, **options)``, a method of the workers' class, on every rank, without waiting.

        A rank is given a :class:`RankBatch`, the ``columns`` of its rows by the plan of ``cut``, with ``observed``; or
        the whole batch. Leaves of observations that lie apart go to it from where they lie.
        """
        given, rows = self._given(batch, cut, columns, observed)
        handles = self._group.submit(method.__name__, per_rank=[(one,) for one in given], **options)
        return BatchCall(self._group, handles, batch, rows)

    def submit_remote(
        self,
        method: Callable[..., Any],
        batch: Batch,
        cut: Cut | None = None,
        *,
        columns: Collection[str],
        **options: Any,
    ) -> tuple[BatchCall, list[Handle]]:
        """As :meth:`submit`, for a method that returns a pair: the second halves stay with the ranks."""
        given, rows = self._given(batch, cut, columns, None)
        pairs = [self._group.submit_remote(rank, method.__name__, one, **options) for rank, one in enumerate(given)]
        return BatchCall(self._group, [first for first, _ in pairs], batch, rows), [second for _, second in pairs]

    def _given(
        self, batch: Batch, cut: Cut | None, columns: Collection[str], observed: NormalizerUpdate | None
    ) -> tuple[list[Any], list[Tensor] | None]:
        """(each rank's argument, the numbers of the rows in it; None: all rows)."""
        facts = None if self._facts_of is None or cut is None else self._facts_of(batch)
        plan = None if facts is None or cut is None else cut(facts, self._places[0])
        if facts is None or plan is None:
            return [self._whole(batch)] * self._group.size, None
        own = plan.by_share(facts)
        if isinstance(batch.inputs, ObservationInputs):
            common = self._cluster.share(BroadcastFacts(plan.steps, None, batch.estimation, observed))
            slim = _slim(batch, columns)
            held = self._with_leaves(batch.inputs, [slim.select(share.rows) for share in own], common, own)
        else:
            layout = RowFormat.of(batch, columns)
            common = self._cluster.share(BroadcastFacts(plan.steps, layout, batch.estimation))
            records = layout.records(batch, [share.rows for share in own])
            apart = _runs_apart(batch, columns, own)
            held = [
                Assembled(_of_records, (self._cluster.share((part, share.parts, placed)), common, *runs))
                for part, share, (placed, runs) in zip(records, own, apart, strict=True)
            ]
        indices = [place.index for place in self._places]
        return [held[index] for index in indices], [own[index].rows for index in indices]

    def _whole(self, batch: Batch) -> Any:
        """All rows, as every rank is given them."""
        slim, inputs = batch.replace(metadata={}, domains=None), batch.inputs
        if isinstance(inputs, TextInputs) and inputs.apart:
            ((placed, runs),) = _runs_apart(batch, [name for rows in inputs.apart for name in rows.names])
            known = self._cluster.share((slim.replace(inputs=replace(inputs, apart=())), placed))
            return Assembled(_with_all_runs, (known, *runs))
        if not isinstance(inputs, ObservationInputs) or inputs.places is None:
            return self._cluster.share(slim)
        known = self._cluster.share(slim.replace(inputs=replace(inputs, sources=())))
        return Assembled(_with_all_leaves, (known, *(source.whole() for source in inputs.sources)))

    def _with_leaves(
        self, inputs: ObservationInputs, parts: Sequence[Batch], common: Any, shares: Sequence[OwnRows]
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
            Assembled(_of_rows, (self._cluster.share((part, share.parts)), common, *own))
            for part, share, own in zip(bare, shares, leaves, strict=True)
        ]

    @functools.cached_property
    def _places(self) -> list[DataParallelRank]:
        return self._group.call(self._place_of.__name__)


def _slim(batch: Batch, columns: Collection[str]) -> Batch:
    """The batch without the columns that no rank reads and a batch can be without."""
    dropped = {name for name in OPTIONAL_COLUMNS if name not in columns}
    return batch.replace(metadata={}, domains=None, estimation=None, **dict.fromkeys(dropped))


@dataclass(frozen=True)
class Placed:
    """Columns that come as runs beside a call, and the rows [n] that they are of."""

    columns: Mapping[str, torch.dtype]
    rows: np.ndarray


def _runs_apart(
    batch: Batch, columns: Collection[str], shares: Sequence[OwnRows] | None = None
) -> list[tuple[list[Placed], list[Any]]]:
    """For each share its runs of the ``columns`` that lie apart, and where they belong; or those of all rows."""
    rows = [share.rows for share in shares] if shares is not None else [torch.arange(batch.num_rows)]
    found: list[tuple[list[Placed], list[Any]]] = [([], []) for _ in rows]
    waiting: list[tuple[list[int], Callable[[], list[Any]]]] = []
    for apart in TextInputs.of(batch.inputs).apart:
        kinds = {name: getattr(batch, name).dtype for name in apart.names if name in columns}
        if not kinds:
            continue
        # The pieces of a source are cut together, and all sources side by side.
        asked: dict[int, list[tuple[int, np.ndarray]]] = {}
        for share, own in enumerate(rows):
            for number, places, at in apart.wanted(own):
                asked.setdefault(number, []).append((share, places))
                found[share][0].append(Placed(kinds, at))
        for number, pieces in sorted(asked.items()):  # as each share has them
            waiting.append(([share for share, _ in pieces], apart.sources[number].pieces([own for _, own in pieces])))
    for takers, wait in waiting:
        for share, piece in zip(takers, wait(), strict=True):
            found[share][1].append(piece)
    return found


def _of_records(
    own: tuple[Tensor, Sequence[StepShard], Sequence[Placed]], common: BroadcastFacts, *runs: RaggedRows
) -> RankBatch:
    """The rows of a batch of text, from their records in shared memory and ``runs`` of what was apart."""
    assert common.layout is not None
    return _share(_with_runs(common.layout.batch(own[0]), own[2], runs), own[1], common)


def _with_runs(batch: Batch, placed: Sequence[Placed], runs: Sequence[RaggedRows]) -> Batch:
    """``batch`` with the columns that came as runs. Padding is 0."""
    columns: dict[str, Tensor] = {}
    for where, part in zip(placed, runs, strict=True):
        for name, dtype in where.columns.items():
            column = columns.setdefault(name, torch.zeros(batch.mask.shape, dtype=dtype))
            part.write(name, column.numpy(), where.rows)
    return batch.replace(**columns)


def _with_all_runs(known: tuple[Batch, Sequence[Placed]], *runs: RaggedRows) -> Batch:
    """All rows of a batch, with the columns that were apart."""
    return _with_runs(known[0].with_flags(), known[1], runs)


def _of_rows(
    own: tuple[Batch, Sequence[StepShard]], common: BroadcastFacts, *leaves: Mapping[str, Tensor]
) -> RankBatch:
    """Rows with observations, some of which were apart."""
    held = own[0].replace(inputs=ObservationInputs.of(own[0].inputs).with_leaves(leaves))
    return _share(held, own[1], common)


def _share(held: Batch, parts: Sequence[StepShard], common: BroadcastFacts) -> RankBatch:
    return RankBatch(held.replace(estimation=common.estimation), parts, common.steps, common.observed)


def _with_all_leaves(batch: Batch, *sources: Mapping[str, Tensor]) -> Batch:
    """All rows of a batch, with the leaves that were apart."""
    return batch.replace(inputs=ObservationInputs.of(batch.inputs).with_rows_of(sources))
