"""Values that stay with the worker that made them: the driver has their handles, and gives them on."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from torch import Tensor

from rlinf.cluster import WORKER_LOST, Handle, WorkerGroup
from rlinf.cluster.api import Assembled
from rlinf.data.inputs import ObservationInputs, leaves_of_rows
from rlinf.data.ragged import RaggedRows
from rlinf.rollouts.simulator.records import RolloutPart

Cut = Callable[..., Sequence[Any]]
"""Called with lists of rows and the values; returns what each list selects."""


def _pieces_of(
    group: WorkerGroup, rank: int, cut: Cut, rows: Sequence[Any], values: Sequence[Handle]
) -> Callable[[], list[Any]]:
    """``cut(rows, *values)`` in the process of the worker that made the values; calling what is returned waits."""
    made, pieces = group.submit_pieces(rank, cut, list(rows), *values, count=len(rows))

    def wait() -> list[Any]:
        try:
            made.result()
        except WORKER_LOST:
            # The values outlive the worker: a caller that needs some has to fetch them all.
            return [Assembled(_cut_once, (cut, own, *values)) for own in rows]
        return list(pieces)

    return wait


class RemoteObservations:
    """Observations: an `inputs.LeafSource`. They are freed with the last batch that has them among its sources."""

    def __init__(self, group: WorkerGroup, rank: int, leaves: Handle) -> None:
        """``leaves``: what worker ``rank`` of the group made."""
        self._group, self._rank, self._leaves = group, rank, leaves

    def whole(self) -> Handle:
        return self._leaves

    def pieces(self, rows: Sequence[Tensor]) -> Callable[[], list[Any]]:
        return _pieces_of(self._group, self._rank, leaves_of_rows, rows, [self._leaves])

    def fetch(self) -> Mapping[str, Tensor]:
        leaves: Mapping[str, Tensor] = self._leaves.result()
        return leaves


class RemoteRowStore:
    """Rows of text: a `runs.RunSource`. They are freed with the last batch that has them among its sources."""

    def __init__(self, group: WorkerGroup, rank: int) -> None:
        """Nothing yet of worker ``rank`` of the group: :meth:`add` records what it has made."""
        self._group, self._rank = group, rank
        self._parts: list[Handle] = []
        self._starts = [0]
        """The row that each part begins with, and the number of all."""

    def add(self, runs: Handle, rows: int) -> int:
        """Record further rows; return the index of the first one."""
        self._parts.append(runs)
        self._starts.append(self._starts[-1] + rows)
        return self._starts[-2]

    def part(self, row: int) -> tuple[Handle, int]:
        """Return the part that a row is in, and its index in there."""
        number = bisect.bisect_right(self._starts, row) - 1
        return self._parts[number], row - self._starts[number]

    def pieces(self, rows: Sequence[np.ndarray]) -> Callable[[], list[Any]]:
        return _pieces_of(self._group, self._rank, _cut_runs, rows, self._parts)

    def fetch(self, rows: np.ndarray) -> RaggedRows:
        (piece,) = self.pieces([rows])()
        result: RaggedRows = piece.of(_here) if isinstance(piece, Assembled) else _here(piece)
        return result


def with_remote_observations(part: RolloutPart, group: WorkerGroup, rank: int, leaves: Handle) -> RolloutPart:
    """Return a worker's part of a rollout with a reference to its images, if any are separate."""
    if part.batch is None:
        return part
    inputs = ObservationInputs.of(part.batch.inputs)
    if inputs.row_refs is None:
        return part
    known = replace(inputs, sources=(RemoteObservations(group, rank, leaves),))
    return replace(part, batch=part.batch.replace(inputs=known))


def _cut_runs(rows: Sequence[np.ndarray], *parts: RaggedRows) -> list[RaggedRows]:
    runs = RaggedRows.join(*parts)
    return [runs.select(own) for own in rows]


def _here(value: Any) -> Any:
    """Fetch a value that a worker has made; return anything else as it is."""
    return value.result() if isinstance(value, Handle) else value


def _cut_once(cut: Cut, rows: Any, *values: Any) -> Any:
    return cut([rows], *values)[0]
