"""The rows of a batch that one rank of a learner works on, and its part in every optimiser step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from rlinf.data.advantage_spec import AdvantageSpec, PendingAdvantages
from rlinf.data.batch import Batch
from rlinf.data.inputs import BatchError, Inputs, TextInputs
from rlinf.data.remote_rows import RemoteRows
from rlinf.data.wire import RowFormat


@dataclass(frozen=True)
class DataParallelRank:
    """Which share of the rows a rank works on, the ``index``-th of ``size``, and how its learner cuts shares.

    Several ranks may work on the same share.
    """

    index: int
    size: int
    micro_batch_tokens: int
    """The most tokens of a micro-batch of several rows."""
    answered_only: bool = False
    """Rows without a response, or a decision, are left out."""
    alike: bool = False
    """All shares run as many micro-batches as the one that has most."""


@dataclass(frozen=True)
class LossCounts:
    """The denominators of an optimiser step: of all its rows, wherever they are."""

    tokens: float
    """Valid tokens, at least 1."""
    rows: float
    """Rows with at least one valid token, at least 1."""

    @classmethod
    def of(cls, lengths: Tensor) -> Self:
        """``lengths`` [B]: valid tokens of each row."""
        return cls(max(float(lengths.sum()), 1.0), max(float((lengths > 0).sum()), 1.0))


@dataclass(frozen=True)
class StepTotals:
    """Facts about all rows of an optimiser step, which every rank must have."""

    counts: LossCounts
    reward_counts: LossCounts | None = None
    """Of the critic's error, where several positions have their value in common."""
    rows: Tensor | None = None
    """[b] int64: the rows themselves, where the loss chooses positions among them and every rank has them all."""


@dataclass(frozen=True)
class StepShard:
    """One rank's part of an optimiser step, or of an evaluation."""

    micro_batches: tuple[Tensor, ...]
    """Each [b'], integers: rows by their index in the batch that is here."""
    passes: int
    """How many micro-batches to run: beyond those above, some in which nothing counts."""


@dataclass(frozen=True)
class NormalizerUpdate:
    """The observations that running statistics take in after an update: those of all rows, on every rank."""

    inputs: Inputs
    mask: Tensor


@dataclass(frozen=True)
class BroadcastFacts:
    """The same for all ranks that are sent their own rows."""

    steps: Sequence[StepTotals]
    """Of an update."""
    layout: RowFormat | None = None
    """Of the records that rows of text travel as; rows with observations travel as a batch."""
    spec: AdvantageSpec | None = None
    """The rule by which ranks compute advantages, if these are pending."""
    observed: NormalizerUpdate | None = None


@dataclass(frozen=True)
class RankBatch:
    """The rows of a batch that are here, and what this rank computes of them."""

    batch: Batch
    """At least one row, with the T of the whole batch."""
    parts: Sequence[StepShard]
    """One for each optimiser step of an update, in their order; of an evaluation one."""
    steps: Sequence[StepTotals] = ()
    """Of an update, as many."""
    observed: NormalizerUpdate | None = None
    pending: PendingAdvantages | None = None
    """The inputs of the advantages of these rows, which the rank computes before it trains."""

    @property
    def num_positions(self) -> int:
        return self.batch.num_positions

    def passes(self, part: StepShard) -> Iterator[tuple[Batch, Tensor]]:
        """(micro-batch, its rows) for every pass of ``part``, those with rows first."""
        for rows in part.micro_batches:
            yield self.select(rows), rows
        for _ in range(part.passes - len(part.micro_batches)):
            yield self.blank(), torch.tensor([0])

    def select(self, rows: Tensor) -> Batch:
        """Select the rows at these positions of what is here, in that order."""
        everything = len(rows) == self.batch.num_rows and rows.long().equal(torch.arange(len(rows)))
        return self.batch if everything else self.batch.select(rows)

    def blank(self) -> Batch:
        """Return a row with nothing to count, for a rank without one; a response is in it if one is here."""
        row = self.batch.select(answered(self.batch).int().argmax()[None])
        return row.replace(mask=row.mask & False)


def answered(rows: Batch | RemoteRows) -> Tensor:
    """[B] bool: the rows that have a response, valid or not, or a decision."""
    if isinstance(rows, RemoteRows) or isinstance(rows.inputs, TextInputs):
        return TextInputs.of(rows.inputs).response_lengths > 0
    return rows.mask.any(dim=1)


def complete(batch: Batch | RankBatch) -> Batch:
    """Return the batch, after checking that all its rows are here.

    :raises BatchError: only a share of the rows is here."""
    if isinstance(batch, RankBatch):
        raise BatchError("this learner reads every row of a batch, and was given a share")
    return batch
