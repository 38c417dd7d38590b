"""Rows of text whose tokens stay in the workers that made them: the driver has their facts, and where they are.

Decision records 0021 and 0025 have the measurements. A batch of 8,192 rows by 8,192 tokens is 1.4 GB on the
driver when its columns are there, and 17 MB when they are not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from rlinf.data.batch import Batch, concatenate
from rlinf.data.columns import ColumnGroup, RewardDetails, TurnCredit, column, join_columns, join_facts, select_facts
from rlinf.data.inputs import ROW_BITS, TextInputs, numbered_among
from rlinf.data.ragged import LazyText, RowStore


@dataclass(frozen=True)
class RemoteColumns:
    """Columns [B, T] of a batch of text that are in row stores, and the row of a store for each row of the batch."""

    names: Mapping[str, torch.dtype]
    """The columns, by their names in a :class:`Batch`."""
    row_refs: Tensor
    """[B] int64: the row of a store, with the number of the store in the upper half; -1: a row without tokens."""
    stores: tuple[RowStore, ...]

    @classmethod
    def of(cls, names: Mapping[str, torch.dtype], rows: Sequence[tuple[RowStore, int] | None]) -> Self:
        """Refer to ``rows``: the store of each row and its number in there; None for a row without tokens."""
        stores = tuple(dict.fromkeys(row[0] for row in rows if row is not None))
        numbers = {store: number << ROW_BITS for number, store in enumerate(stores)}
        refs = [-1 if row is None else numbers[row[0]] + row[1] for row in rows]
        return cls(names, torch.tensor(refs, dtype=torch.int64), stores)

    def select(self, index: Tensor) -> Self:
        """Select the rows of an int64 index [B']."""
        return replace(self, row_refs=self.row_refs[index])

    @classmethod
    def join(cls, parts: Sequence[Self]) -> Self:
        """Join the rows of all parts, which have the same columns."""
        stores = tuple(dict.fromkeys(store for part in parts for store in part.stores))
        refs = torch.cat([numbered_among(stores, part.stores, part.row_refs) for part in parts])
        return cls(parts[0].names, refs, stores)

    def requested_rows(self, rows: Tensor) -> list[tuple[int, np.ndarray, np.ndarray]]:
        """For ``rows`` int64 [n] of the batch: (number of a store, rows [k] in it, their positions [k] among the n)."""
        refs = self.row_refs[rows].numpy()
        numbers = np.where(refs < 0, -1, refs >> ROW_BITS)
        stores = np.unique(numbers[numbers >= 0]).tolist()
        positions = ((number, np.flatnonzero(numbers == number)) for number in stores)
        return [(number, refs[at] & (1 << ROW_BITS) - 1, at) for number, at in positions]

    def fetch(self, positions: int) -> dict[str, Tensor]:
        """Fetch all columns [B, T = ``positions``], 0 after the end of each row."""
        count = len(self.row_refs)
        columns = {name: torch.zeros(count, positions, dtype=dtype) for name, dtype in self.names.items()}
        for number, own, at in self.requested_rows(torch.arange(count)):
            rows = self.stores[number].fetch(own)
            for name, target in columns.items():
                rows.write(name, target.numpy(), at)
        return columns


@dataclass(frozen=True)
class RemoteRows(ColumnGroup):
    """B responses of one turn whose tokens and log-probabilities are elsewhere, and a few numbers of each.

    Every position of a response is valid, or none is, and all were chosen by one version of the weights. So three
    numbers a row replace the flags [B, T] of a :class:`Batch`. :meth:`fetch` makes that batch.
    """

    inputs: TextInputs
    """The prompts, and the lengths of the responses."""
    lengths: Tensor = field(metadata=column("B"))
    """[B] int64: the valid positions of each row; 0 when nothing is learned from it."""
    rewards: Tensor = field(metadata=column("B"))
    """[B] float32: the outcome of each row."""
    group_ids: Tensor = field(metadata=column("B"))
    """[B] int64: rows of one prompt share a group."""
    truncated: Tensor = field(metadata=column("B"))
    """[B] bool: a limit on tokens ended the response."""
    policy_version: Tensor = field(metadata=column("B"))
    """[B] int32: the version of the weights that chose the tokens."""
    num_positions: int
    """T: the tokens of the longest response."""
    columns: tuple[RemoteColumns, ...]
    """Every column [B, T] that is elsewhere: "actions" and "rollout_logprobs", later what ranks computed of them."""
    on_policy: Tensor | None = field(default=None, metadata=column("B"))
    """[B] bool: the weights that are trained chose the tokens. None: they chose all."""
    reward_details: RewardDetails = field(default_factory=RewardDetails)
    """As :attr:`Batch.reward_details`."""
    turn_credit: TurnCredit = field(default_factory=TurnCredit)
    """As :attr:`Batch.turn_credit`."""
    domains: Sequence[str] | None = None
    """[B] names of the task families."""
    metadata: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """Facts of each row for reports, length B each; a text may be a :class:`LazyText`."""

    def __post_init__(self) -> None:
        """Check the shapes of all columns.

        :raises BatchError: one has another shape; the message names it.
        """
        self.check(self.num_rows, self.num_positions, self.num_positions)
        self.inputs.check(self.num_rows, self.num_positions)

    @property
    def num_rows(self) -> int:
        return len(self.lengths)

    @property
    def valid_counts(self) -> Tensor:
        """[B] int64: the valid positions of each row."""
        return self.lengths

    def keeping(self, kept: Tensor) -> Self:
        """Copy without a valid position in the rows that are not ``kept`` [B] bool."""
        return self.replace(lengths=torch.where(kept, self.lengths, 0))

    def with_columns(self, names: Mapping[str, torch.dtype], rows: Sequence[tuple[RowStore, int] | None]) -> Self:
        """Copy with further columns, which are in ``rows`` as of :meth:`RemoteColumns.of`."""
        return self.replace(columns=(*self.columns, RemoteColumns.of(names, rows)))

    def has(self, name: str) -> bool:
        """Whether a column [B, T] of this name is in a store."""
        return any(name in columns.names for columns in self.columns)

    def select(self, rows: Tensor | Sequence[int]) -> Self:
        """Select the rows of an int64 index [B'], in that order; nothing is fetched."""
        index = torch.as_tensor(rows, dtype=torch.int64)
        return self.replace(
            **self.changed(lambda _, tensor: tensor.index_select(0, index)),
            inputs=self.inputs.select(index),
            columns=tuple(columns.select(index) for columns in self.columns),
            **select_facts(self, index),
        )

    def flags(self) -> dict[str, Tensor]:
        """Make the flags [B, T] of a batch: ``mask``, ``terminated`` and ``truncated``."""
        return flags_of(self.lengths, self.truncated, self.num_positions)

    def fetch(self) -> Batch:
        """Bring all columns here: the complete batch of these rows."""
        columns: dict[str, Tensor] = {}
        for remote in self.columns:
            columns |= remote.fetch(self.num_positions)
        return self.complete(columns)

    def complete(self, columns: Mapping[str, Tensor]) -> Batch:
        """Make the batch of these rows with ``columns`` [B, T], which were elsewhere."""
        flags = self.flags()
        return Batch(
            inputs=self.inputs,
            rewards=self.rewards,
            group_ids=self.group_ids,
            policy_version=self.policy_version[:, None].expand(-1, self.num_positions),
            fresh=None if self.on_policy is None else flags["mask"] & self.on_policy[:, None],
            metadata={
                name: [str(value) if isinstance(value, LazyText) else value for value in values]
                for name, values in self.metadata.items()
            },
            reward_details=self.reward_details,
            turn_credit=self.turn_credit,
            domains=self.domains,
            **dict[str, Any](flags),
            **dict[str, Any](columns),
        )


def flags_of(lengths: Tensor, truncated: Tensor, positions: int) -> dict[str, Tensor]:
    """Make ``mask``, ``terminated`` and ``truncated`` [B, T] bool of rows with ``lengths`` [B] valid first positions.

    >>> flags_of(torch.tensor([2]), torch.tensor([True]), 3)["truncated"]
    tensor([[False,  True, False]])
    """
    every = torch.arange(positions)
    ends = every == lengths[:, None] - 1
    return {"mask": every < lengths[:, None], "terminated": ends, "truncated": ends & truncated[:, None]}


def join_rows(parts: Sequence[Batch | RemoteRows]) -> Batch | RemoteRows:
    """Join the rows of all parts; they stay where they are if all parts are remote."""
    remote = [part for part in parts if isinstance(part, RemoteRows)]
    if len(remote) < len(parts):
        return concatenate([part.fetch() for part in parts])
    first, positions = remote[0], max(part.num_positions for part in remote)
    fitted = [part.replace(num_positions=positions, **part.fitted(positions, positions)) for part in remote]
    return first.replace(
        **join_columns(fitted),
        inputs=TextInputs.join([part.inputs for part in remote]),
        num_positions=positions,
        columns=tuple(RemoteColumns.join(same) for same in zip(*(part.columns for part in remote), strict=True)),
        **join_facts(remote),
    )
