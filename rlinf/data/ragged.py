"""Columns of rows of different lengths, one row after another: the layout of rows of text where they were made.

No torch here: the workers that grade read them too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np

from rlinf.data.token_array import Number, TokenArray

TOKENS, LOGPROBS = "actions", "rollout_logprobs"
"""The columns of runs that samplers make, by their names in a batch."""


@dataclass(frozen=True)
class RaggedRows:
    """Columns of n rows."""

    lengths: np.ndarray
    """[n] int64."""
    columns: Mapping[str, np.ndarray]
    """Each [sum of lengths]."""

    @classmethod
    def of_rows(cls, columns: Mapping[str, Sequence[np.ndarray]]) -> Self:
        """``columns``: the arrays of each row, which are of equal length for all columns."""
        lengths = np.array([len(row) for row in next(iter(columns.values()))], np.int64)
        return cls(lengths, {name: np.concatenate(rows) if rows else np.zeros(0) for name, rows in columns.items()})

    @classmethod
    def join(cls, *parts: Self) -> Self:
        """Join the rows of all parts, which have the same columns."""
        if len(parts) == 1:
            return parts[0]
        columns = {name: np.concatenate([part.columns[name] for part in parts]) for name in parts[0].columns}
        return cls(np.concatenate([part.lengths for part in parts]), columns)

    def spans(self) -> list[slice]:
        """Where each row is."""
        ends = self.lengths.cumsum()
        return [slice(*span) for span in zip((ends - self.lengths).tolist(), ends.tolist(), strict=True)]

    def select(self, rows: np.ndarray) -> Self:
        """Select the rows at these positions, int64 [n'], in that order."""
        if np.array_equal(rows, np.arange(len(self.lengths))):
            return self
        spans = self.spans()
        chosen = [spans[row] for row in rows.tolist()]
        columns = {
            name: np.concatenate([column[:0], *(column[span] for span in chosen)])
            for name, column in self.columns.items()
        }
        return type(self)(self.lengths[rows], columns)

    def write(self, name: str, column: np.ndarray, rows: np.ndarray) -> None:
        """Write a column into ``rows``, int64 [n], of ``column`` [B, T], from the first position on."""
        numbers = self.columns[name]
        for row, length, span in zip(rows.tolist(), self.lengths.tolist(), self.spans(), strict=True):
            column[row, :length] = numbers[span]


class RowStore(Protocol):
    """Runs of some rows, where the worker that made them has put them."""

    def part(self, row: int) -> tuple[Any, int]:
        """Return the part that a row is in, and its position in there.

        A worker that is given the part in a call is given its :class:`RaggedRows`."""

    def pieces(self, rows: Sequence[np.ndarray]) -> Callable[[], list[Any]]:
        """Likewise these rows int64 [n] each, cut out where the runs are stored. Calling what is returned waits."""

    def fetch(self, rows: np.ndarray) -> RaggedRows:
        """Fetch these rows int64 [n] to this process."""


class RemoteArray(TokenArray[Number]):
    """A row's column that is in a source: a reader of its numbers fetches them."""

    def __init__(self, source: RowStore, row: int, name: str, length: int, kind: Any) -> None:
        self.source, self.row, self.dtype = source, row, np.dtype(kind)
        self._name, self._length = name, length
        self._fetched: np.ndarray | None = None

    @property
    def array(self) -> np.ndarray:
        if self._fetched is None:
            self._fetched = self.source.fetch(np.array([self.row])).columns[self._name]
        return self._fetched

    def __len__(self) -> int:
        return self._length


class LazyText:
    """The text of a response that is elsewhere: ``str`` fetches and decodes it."""

    def __init__(self, tokens: TokenArray[int], decode: Callable[[Sequence[int]], str]) -> None:
        self._tokens, self._decode = tokens, decode

    def __str__(self) -> str:
        return self._decode(self._tokens)
