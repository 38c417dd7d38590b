"""The numbers by which each rank of a learner computes the advantages of its own rows, wherever the other rows are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import torch
from torch import Tensor

from rlinf.data.batch import Batch
from rlinf.data.remote_rows import RemoteRows
from rlinf.schema import AlgorithmConfig


@dataclass(frozen=True)
class MeanStd:
    """Mean and deviation of all valid positions of a batch: whitening subtracts ``mean`` and divides by ``scale``."""

    mean: float
    scale: float


@dataclass(frozen=True, eq=False)
class GroupNumbers:
    """Statistics of every group of a batch, all [G]: an estimator compares a row with the rest of its group by them."""

    groups: Tensor
    """int64, ascending."""
    mean: Tensor
    """float64: the mean of the outcomes, or of the rewards of steps (`entries.Estimator.compares`)."""
    std: Tensor
    """float64: the standard deviation of the same."""
    size: Tensor
    """float64: rows."""
    constant: Tensor
    """bool: all outcomes are the same."""


@dataclass(frozen=True)
class BatchStatistics:
    """Statistics of a whole batch for ranks that have some of its rows; None when the estimator reads none."""

    rewards: MeanStd | None = None
    """Of the rewards of positions (``whiten_rewards``)."""
    advantages: MeanStd | None = None
    """Of the advantages before they are whitened."""
    groups: GroupNumbers | None = None


@dataclass(frozen=True)
class AdvantageSpec:
    """The rule by which advantages are computed from the columns of any rows of a batch."""

    algorithm: AlgorithmConfig
    """With the ``kl_coef`` of this training iteration."""
    statistics: BatchStatistics = field(default_factory=BatchStatistics)
    precomputed: bool = False
    """:attr:`PendingAdvantages.rewards` are already the estimator's result for a row or a turn: what follows it is
    left."""


@dataclass(frozen=True)
class PendingAdvantages:
    """The inputs of advantages that are yet to be computed, by the ranks that have the rows.

    GRPO on four responses of a group, rewards 1, 0, 0, 1, needs one number a row and nothing else:

        PendingAdvantages(spec=AdvantageSpec(..., precomputed=True), rewards=[[1.0], [-1.0], [-1.0], [1.0]],
                          segment_starts=None, has_gradient=[True, True, True, True])
    """

    spec: AdvantageSpec
    rewards: Tensor
    """[B] or [B, T] rewards as the estimator reads them; [B, U] the advantages of rows or turns if ``precomputed``."""
    segment_starts: Tensor | None = None
    """[B, U] int32: the first position of each turn, T when a row has fewer. None: a segment is the whole row."""
    has_gradient: Tensor | None = None
    """[B] bool: the rows that get an advantage other than 0. None: not known yet."""

    def select(self, index: Tensor) -> Self:
        """Select the rows of an int64 index [B']."""
        starts, gradient = self.segment_starts, self.has_gradient
        return replace(
            self,
            rewards=self.rewards[index],
            segment_starts=None if starts is None else starts[index],
            has_gradient=None if gradient is None else gradient[index],
        )


@dataclass(frozen=True)
class PreparedRows:
    """Rows of a batch, and the advantages that the ranks of the learner will compute of them."""

    rows: Batch | RemoteRows
    pending: PendingAdvantages

    @property
    def num_rows(self) -> int:
        return self.rows.num_rows

    @property
    def num_positions(self) -> int:
        return self.rows.num_positions

    @property
    def group_ids(self) -> Tensor:
        return self.rows.group_ids

    @property
    def valid_counts(self) -> Tensor:
        """[B] int64: the valid positions of each row."""
        return self.rows.valid_counts

    def select(self, rows: Tensor | Sequence[int]) -> Self:
        """Select the rows of an int64 index [B'], in that order."""
        index = torch.as_tensor(rows, dtype=torch.int64)
        return replace(self, rows=self.rows.select(index), pending=self.pending.select(index))

    def fetch(self) -> Self:
        """Bring all columns here; the advantages stay pending."""
        return replace(self, rows=self.rows.fetch())


Rows = Batch | RemoteRows | PreparedRows
"""The rows of a training iteration: complete, elsewhere, or with advantages that ranks compute."""


def unprepared(rows: Rows) -> tuple[Batch | RemoteRows, PendingAdvantages | None]:
    """Return the rows themselves, and the advantages that ranks compute of them, if they are prepared."""
    return (rows.rows, rows.pending) if isinstance(rows, PreparedRows) else (rows, None)
