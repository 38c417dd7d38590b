"""Observations that stay with the env worker that made them: the driver has a handle of them, and gives it on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor

from rlinf.cluster import WORKER_LOST, Handle, WorkerGroup
from rlinf.cluster.api import Assembled
from rlinf.inputs import leaves_of_rows
from rlinf.rollouts.simulator.records import RolloutPart
from rlinf.types import ObservationInputs


class KeptLeaves:
    """An `inputs.LeafSource`. The leaves are freed with the last batch that has them among its sources."""

    def __init__(self, group: WorkerGroup, rank: int, leaves: Handle) -> None:
        """``leaves``: what worker ``rank`` of the group made."""
        self._group, self._rank, self._leaves = group, rank, leaves

    def whole(self) -> Handle:
        return self._leaves

    def pieces(self, rows: Sequence[Tensor]) -> Callable[[], list[Any]]:
        made, cut = self._group.submit_pieces(self._rank, leaves_of_rows, self._leaves, list(rows), count=len(rows))

        def wait() -> list[Any]:
            try:
                made.result()
            except WORKER_LOST:
                # The leaves outlive the worker: whoever asks for some has to fetch them all.
                return [Assembled(_rows_of, (self._leaves, own)) for own in rows]
            return list(cut)

        return wait

    def fetch(self) -> Mapping[str, Tensor]:
        leaves: Mapping[str, Tensor] = self._leaves.result()
        return leaves


def with_kept_leaves(part: RolloutPart, group: WorkerGroup, rank: int, leaves: Handle) -> RolloutPart:
    """A worker's part of a rollout, which knows where its images are, if any are apart."""
    if part.batch is None:
        return part
    inputs = ObservationInputs.of(part.batch.inputs)
    if inputs.places is None:
        return part
    known = replace(inputs, sources=(KeptLeaves(group, rank, leaves),))
    return replace(part, batch=part.batch.replace(inputs=known))


def _rows_of(leaves: Mapping[str, Tensor], rows: Tensor) -> Mapping[str, Tensor]:
    return leaves_of_rows(leaves, [rows])[0]
