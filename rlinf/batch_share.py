"""The rows of a batch that one rank of a learner works on, and what it has to know of the others."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from rlinf.estimation import Estimation
from rlinf.row_records import RecordLayout
from rlinf.types import Batch, BatchError, Costs, Inputs, TextInputs


@dataclass(frozen=True)
class RowFacts:
    """Of every row of a batch, on every rank: by them all ranks cut it alike and know an optimiser step's denominators.

    All are [B]; 18 bytes a row together, and 10 on their way where all numbers are below 2 ** 15.
    """

    costs: Costs
    tokens: Tensor
    """int32: valid positions."""
    answered: Tensor
    """bool: there is a response, valid or not."""
    moving: Tensor
    """bool: some valid position has an advantage that is not 0. All where there are no advantages yet."""
    rewards: Tensor | None = None
    """int32: rewards with a valid position, where several positions share one."""

    @classmethod
    def of(cls, batch: Batch, costs: Costs) -> Self:
        def small(column: Tensor | None) -> Tensor | None:
            return None if column is None else column.int()

        if batch.moving is not None:
            moving = batch.moving
        elif batch.advantages is None:
            moving = torch.ones_like(batch.mask[:, 0])
        else:
            moving = (batch.mask & (batch.advantages != 0)).any(dim=1)
        tokens, shared = batch.mask.sum(dim=1, dtype=torch.int32), batch.positions_per_reward
        rewards = None
        if shared > 1:
            rewards = batch.mask.unflatten(1, (-1, shared)).any(dim=2).sum(dim=1, dtype=torch.int32)
        answered = batch.inputs.response_lengths > 0 if isinstance(batch.inputs, TextInputs) else tokens > 0
        small_costs = Costs(costs.lengths.int(), small(costs.shared), small(costs.owners))
        return cls(small_costs, tokens, answered, moving, rewards)

    @functools.cached_property
    def common_length(self) -> int:
        """The valid positions that every row has; 0 where they differ."""
        least, most = self.tokens.aminmax() if len(self.tokens) else (0, 0)
        return int(least) if int(least) == int(most) else 0

    def narrow(self) -> RowFacts:
        """The same numbers in as few bytes as hold them, for their way to the ranks."""
        return self._each(lambda column: column.short() if bool((column.abs() < 1 << 15).all()) else column)

    def wide(self) -> RowFacts:
        """As they were before :meth:`narrow`: sums of two would not fit there."""
        return self._each(Tensor.int)

    def _each(self, change: Callable[[Tensor], Tensor]) -> RowFacts:
        optional = (self.costs.shared, self.costs.owners, self.rewards)
        shared, owners, rewards = (None if one is None else change(one) for one in optional)
        costs = Costs(change(self.costs.lengths), shared, owners)
        return replace(self, costs=costs, tokens=change(self.tokens), rewards=rewards)


@dataclass(frozen=True)
class Observed:
    """The observations that running statistics take in after an update: those of all rows, on every rank."""

    inputs: Inputs
    mask: Tensor


@dataclass(frozen=True)
class CommonFacts:
    """The same for all ranks that are sent their own rows."""

    rows: RowFacts
    """Narrow."""
    layout: RecordLayout | None = None
    """Of the records that rows of text travel as; rows with observations travel as a batch."""
    estimation: Estimation | None = None
    """`Batch.estimation`."""
    observed: Observed | None = None


@dataclass(frozen=True)
class BatchShare:
    """A batch of which only some rows are here. Rows go by their numbers in the whole batch."""

    held: Batch
    """At least one row, with the T of the whole batch."""
    facts: RowFacts
    rows: Tensor | None = None
    """[b] int64: which rows ``held`` has; None: all, in their order."""
    observed: Observed | None = None

    @classmethod
    def whole(cls, batch: Batch, costs: Costs) -> Self:
        return cls(batch, RowFacts.of(batch, costs))

    @property
    def num_rows(self) -> int:
        """Of the whole batch."""
        return len(self.facts.tokens)

    @property
    def num_positions(self) -> int:
        return self.held.num_positions

    @functools.cached_property
    def _place(self) -> Tensor:
        """[B]: where each row stands in ``held``, or -1."""
        assert self.rows is not None
        places = torch.full((self.num_rows,), -1)
        places[self.rows] = torch.arange(len(self.rows))
        return places

    def select(self, rows: Tensor) -> Batch:
        """These rows, in that order.

        :raises BatchError: one of them is on another rank.
        """
        if self.rows is None:
            everything = len(rows) == self.held.num_rows and rows.equal(torch.arange(len(rows)))
            return self.held if everything else self.held.select(rows)
        places = self._place[rows]
        if bool((places < 0).any()):
            raise BatchError(f"rows {rows[places < 0].tolist()[:5]} of the batch are on other ranks")
        return self.held.select(places)

    def blank(self) -> Batch:
        """A row with nothing to count, for a rank that takes part without one; a response is in it if one is here."""
        rows = torch.arange(self.num_rows) if self.rows is None else self.rows
        row = self.select(rows[self.facts.answered[rows].int().argmax()][None])
        return row.replace(mask=row.mask & False)


def complete(batch: Batch | BatchShare) -> Batch:
    """:raises BatchError: only a share of the rows is here."""
    if isinstance(batch, Batch):
        return batch
    if batch.rows is not None:
        raise BatchError("this learner reads every row of a batch, and was given a share")
    return batch.held
