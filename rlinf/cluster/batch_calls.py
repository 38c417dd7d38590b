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
from rlinf.data.advantage_spec import PendingAdvantages, PreparedRows, Rows, unprepared
from rlinf.data.batch import OPTIONAL_COLUMNS, Batch
from rlinf.data.inputs import ObservationInputs
from rlinf.data.messages import PolicyOutput
from rlinf.data.ragged import RaggedRows
from rlinf.data.remote_rows import RemoteRows
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
    batch: Rows
    rows: Sequence[Tensor] | None
    """Of each rank, the numbers [b] of the rows that it was sent; None: all have the whole batch."""

    def results(self) -> list[Any]:
        """Return the values that the ranks return, in their order."""
        return self.group.gather(self.handles)

    def joined(self) -> Tensor:
        """Join the numbers [B, ...] in the order of the batch, of ranks that return (rows, numbers [B', ...]).

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
        """Check that each row that is ``left_out`` [B] has no valid position.

        :raises WorkerError: a row that has a valid position is ``left_out`` [B]."""
        if bool(self.batch.valid_counts[left_out].any()):
            method = self.handles[0].method
            raise WorkerError("the learner left rows out", group=self.group.name, rank=0, method=method)

    def numbered(self) -> list[tuple[Tensor, Any]]:
        """Return the (rows, value) of each rank, with rows as their numbers in the batch."""
        results: list[tuple[Tensor, Any]] = self.results()
        if self.rows is None:
            return results
        return [(sent[indices.long()], value) for sent, (indices, value) in zip(self.rows, results, strict=True)]

    def _joined(self, parts: Sequence[tuple[Tensor, Any]]) -> Tensor:
        first = parts[0][1]
        result = torch.zeros(self.batch.num_rows, *first.shape[1:], dtype=first.dtype)
        for rows, numbers in parts:
            result[rows] = numbers
        return result


class BatchCalls:
    """Calls to all ranks of a learner about one batch. The contents of columns are not read."""

    def __init__(
        self,
        group: WorkerGroup,
        cluster: Cluster,
        facts_of: Callable[[Rows], RowFacts] | None,
        rank_of: Callable[..., DataParallelRank],
    ) -> None:
        """``facts_of``: what rows are cut by; without it all ranks are sent every row. ``rank_of``: the method of the
        workers' class that returns which share of the rows a rank works on, and how all are cut."""
        self._group, self._cluster, self._rank_of = group, cluster, rank_of
        self._facts_of = facts_of if group.size > 1 else None

    @property
    def divides(self) -> bool:
        """Whether there is anything to divide rows among, and by."""
        return self._facts_of is not None

    def submit(
        self,
        method: Callable[..., Any],
        rows: Rows,
        cut: Cut | None = None,
        *,
        columns: Collection[str] = (),
        observed: NormalizerUpdate | None = None,
        **options: Any,
    ) -> BatchCall:
        """Start ``method(batch, **options)``, a method of the workers' class, on every rank, without waiting.

        A rank is given a :class:`RankBatch`, the ``columns`` of its rows by the plan of ``cut``, with ``observed``;
        or the whole batch. Leaves of observations that are stored separately go to it directly from where they are
        stored.
        """
        arguments, sent = self._given(rows, cut, columns, observed)
        handles = self._group.submit(method.__name__, per_rank=[(one,) for one in arguments], **options)
        return BatchCall(self._group, handles, rows, sent)

    def submit_remote(
        self,
        method: Callable[..., Any],
        rows: Rows,
        cut: Cut | None = None,
        *,
        columns: Collection[str],
        **options: Any,
    ) -> tuple[BatchCall, list[Handle]]:
        """As :meth:`submit`, for a method that returns a pair: the second halves stay with the ranks."""
        arguments, sent = self._given(rows, cut, columns, None)
        pairs = [self._group.submit_remote(rank, method.__name__, one, **options) for rank, one in enumerate(arguments)]
        return BatchCall(self._group, [first for first, _ in pairs], rows, sent), [second for _, second in pairs]

    def _given(
        self, rows: Rows, cut: Cut | None, columns: Collection[str], observed: NormalizerUpdate | None
    ) -> tuple[list[Any], list[Tensor] | None]:
        """(each rank's argument, the numbers of the rows in it; None: all rows)."""
        facts = None if self._facts_of is None or cut is None else self._facts_of(rows)
        plan = None if facts is None or cut is None else cut(facts, self._ranks[0])
        if facts is None or plan is None:
            return [self._whole(rows)] * self._group.size, None
        own = plan.by_share(facts)
        here, pending = unprepared(rows)
        spec = None if pending is None else pending.spec
        if isinstance(here, Batch) and isinstance(here.inputs, ObservationInputs):
            common = self._cluster.share(BroadcastFacts(plan.steps, None, spec, observed))
            # Drop from the batch the columns that no rank reads and that a batch can be without.
            dropped = {name for name in OPTIONAL_COLUMNS if name not in columns}
            slim = here.replace(metadata={}, domains=None, **dict.fromkeys(dropped))
            held = self._with_leaves(here.inputs, [slim.select(share.rows) for share in own], common, own)
        else:
            layout = RowFormat.of(rows, columns)
            common = self._cluster.share(BroadcastFacts(plan.steps, layout, spec))
            records = layout.records(rows, [share.rows for share in own])
            remote = _remote_columns(here, columns, own)
            held = [
                Assembled(_of_records, (self._cluster.share((part, share.parts, placed)), common, *ragged))
                for part, share, (placed, ragged) in zip(records, own, remote, strict=True)
            ]
        indices = [rank.index for rank in self._ranks]
        return [held[index] for index in indices], [own[index].rows for index in indices]

    def _whole(self, rows: Rows) -> Any:
        """All rows, as every rank is given them."""
        here, pending = unprepared(rows)
        if isinstance(here, RemoteRows):
            names = [name for remote in here.columns for name in remote.names]
            ((placed, ragged),) = _remote_columns(here, names)
            bare = here.replace(columns=(), metadata={}, domains=None)
            return Assembled(_with_all_columns, (self._cluster.share((bare, pending, placed)), *ragged))
        slim, inputs = here.replace(metadata={}, domains=None), here.inputs
        if not isinstance(inputs, ObservationInputs) or inputs.row_refs is None:
            return self._cluster.share(slim if pending is None else PreparedRows(slim, pending))
        known = self._cluster.share(slim.replace(inputs=replace(inputs, sources=())))
        return Assembled(_with_all_leaves, (known, *(source.whole() for source in inputs.sources)))

    def _with_leaves(
        self, inputs: ObservationInputs, parts: Sequence[Batch], common: Any, shares: Sequence[OwnRows]
    ) -> list[Assembled]:
        """Add to each share of a batch with ``inputs`` the leaves of its own rows."""
        bare = [part.replace(inputs=replace(ObservationInputs.of(part.inputs), sources=())) for part in parts]
        requested = [ObservationInputs.of(part.inputs).requested_rows() for part in bare]
        # The pieces of a source are cut together, and all sources side by side.
        by_source: dict[int, list[Tensor]] = {}
        for share in requested:
            for number, own in share:
                by_source.setdefault(number, []).append(own)
        cut = {number: inputs.sources[number].pieces(own) for number, own in by_source.items()}
        pieces = {number: iter(wait()) for number, wait in cut.items()}
        leaves = [[next(pieces[number]) for number, _ in share] for share in requested]
        return [
            Assembled(_of_rows, (self._cluster.share((part, share.parts)), common, *own))
            for part, share, own in zip(bare, shares, leaves, strict=True)
        ]

    @functools.cached_property
    def _ranks(self) -> list[DataParallelRank]:
        return self._group.call(self._rank_of.__name__)


@dataclass(frozen=True)
class _Placed:
    """Columns that come as runs in addition to a call, and the rows [n] that they are of."""

    columns: Mapping[str, torch.dtype]
    rows: np.ndarray


def _remote_columns(
    rows: Batch | RemoteRows, columns: Collection[str], shares: Sequence[OwnRows] | None = None
) -> list[tuple[list[_Placed], list[Any]]]:
    """For each share its ``columns`` that are elsewhere, and where they belong; or those of all rows."""
    own_rows = [share.rows for share in shares] if shares is not None else [torch.arange(rows.num_rows)]
    parts: list[tuple[list[_Placed], list[Any]]] = [([], []) for _ in own_rows]
    waiting: list[tuple[list[int], Callable[[], list[Any]]]] = []
    for remote in rows.columns if isinstance(rows, RemoteRows) else ():
        kinds = {name: dtype for name, dtype in remote.names.items() if name in columns}
        if not kinds:
            continue
        # The pieces of a store are cut together, and all stores side by side.
        by_store: dict[int, list[tuple[int, np.ndarray]]] = {}
        for share, own in enumerate(own_rows):
            for number, stored, at in remote.requested_rows(own):
                by_store.setdefault(number, []).append((share, stored))
                parts[share][0].append(_Placed(kinds, at))
        for number, pieces in sorted(by_store.items()):  # as each share has them
            waiting.append(([share for share, _ in pieces], remote.stores[number].pieces([own for _, own in pieces])))
    for takers, wait in waiting:
        for share, piece in zip(takers, wait(), strict=True):
            parts[share][1].append(piece)
    return parts


def _of_records(
    own: tuple[Tensor, Sequence[StepShard], Sequence[_Placed]], common: BroadcastFacts, *ragged: RaggedRows
) -> RankBatch:
    """Build the rows of a batch of text from their records in shared memory and the columns sent with them."""
    assert common.layout is not None
    batch, pending = common.layout.read(own[0], common.spec)
    return RankBatch(_with_columns(batch, own[2], ragged), own[1], common.steps, common.observed, pending)


def _with_columns(batch: Batch, placed: Sequence[_Placed], ragged: Sequence[RaggedRows]) -> Batch:
    """``batch`` with the columns that came as ragged rows. Padding is 0."""
    columns: dict[str, Tensor] = {}
    for where, part in zip(placed, ragged, strict=True):
        for name, dtype in where.columns.items():
            column = columns.setdefault(name, torch.zeros(batch.mask.shape, dtype=dtype))
            part.write(name, column.numpy(), where.rows)
    return batch.replace(**columns)


def _with_all_columns(
    known: tuple[RemoteRows, PendingAdvantages | None, Sequence[_Placed]], *ragged: RaggedRows
) -> Batch | PreparedRows:
    """All rows of a batch, with the columns that were elsewhere."""
    rows, pending, placed = known
    shape = rows.num_rows, rows.num_positions
    blank = {"actions": torch.zeros(shape, dtype=torch.int64), "rollout_logprobs": torch.zeros(shape)}
    batch = _with_columns(rows.complete(blank), placed, ragged)
    return batch if pending is None else PreparedRows(batch, pending)


def _of_rows(
    own: tuple[Batch, Sequence[StepShard]], common: BroadcastFacts, *leaves: Mapping[str, Tensor]
) -> RankBatch:
    """Rows with observations, some of which were stored separately."""
    held = own[0].replace(inputs=ObservationInputs.of(own[0].inputs).with_leaves(leaves))
    return RankBatch(held, own[1], common.steps, common.observed, None)


def _with_all_leaves(batch: Batch, *sources: Mapping[str, Tensor]) -> Batch:
    """All rows of a batch, with the leaves that were stored separately."""
    return batch.replace(inputs=ObservationInputs.of(batch.inputs).with_rows_of(sources))
