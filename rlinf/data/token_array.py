"""Runs of numbers of one kind, such as the tokens of a response: they read like tuples and travel as bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar, overload

import numpy as np

Number = TypeVar("Number", int, float, bool)


class TokenArray(Sequence[Number], Generic[Number]):
    """An immutable array [n] that equals, hashes like and adds to a tuple of its numbers.

    A tuple of Python numbers takes 30 bytes a number, and pickling it a hundred times as long.

    >>> tokens = TokenArray.ints([5, 6, 7])
    >>> tokens[:2] + tokens[2:] == (5, 6, 7), (4,) + tokens
    (True, (4, 5, 6, 7))
    """

    dtype: np.dtype

    def __init__(self, array: np.ndarray) -> None:
        """``array`` [n] is kept as it is, and must not be written to."""
        self._array, self.dtype = array, array.dtype

    @property
    def array(self) -> np.ndarray:
        return self._array

    @classmethod
    def ints(cls, numbers: Iterable[int] = ()) -> TokenArray[int]:
        """As int32: token ids, versions."""
        return _column(numbers, np.int32)

    @classmethod
    def floats(cls, numbers: Iterable[float] = ()) -> TokenArray[float]:
        """As float32: log-probabilities."""
        return _column(numbers, np.float32)

    @classmethod
    def flags(cls, numbers: Iterable[float] = ()) -> TokenArray[bool]:
        return _column(numbers, np.bool_)

    def like(self, number: Number) -> TokenArray[Number]:
        """As long as this one, of one number."""
        return TokenArray(np.full(len(self), number, self.dtype))

    def __len__(self) -> int:
        return len(self._array)

    def __iter__(self) -> Iterator[Number]:
        return iter(self.array.tolist())

    @overload
    def __getitem__(self, index: int) -> Number: ...

    @overload
    def __getitem__(self, index: slice) -> TokenArray[Number]: ...

    def __getitem__(self, index: int | slice) -> Number | TokenArray[Number]:
        if isinstance(index, slice) and index.indices(len(self)) == (0, len(self), 1):
            return self
        result = self.array[index]
        return TokenArray(result) if isinstance(index, slice) else result.item()

    def __add__(self, other: Iterable[Number]) -> TokenArray[Number]:
        if not len(self):
            return _column(other, self.dtype)
        return TokenArray(np.concatenate([self.array, _array(other, self.dtype)]))

    def __radd__(self, other: Any) -> Any:
        """Return a tuple or list with these numbers behind it."""
        return other + type(other)(self)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, (TokenArray, tuple, list)):
            return NotImplemented
        return len(other) == len(self) and bool((self.array == _array(other, self.dtype)).all())

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (self.dtype.str, self.array.tobytes())

    def runs(self) -> list[tuple[Number, int]]:
        """List (number, how often) for each run of equal numbers.

        >>> TokenArray.ints([3, 3, 4]).runs()
        [(3, 2), (4, 1)]
        """
        if not len(self):
            return []
        starts: np.ndarray = np.concatenate([[0], np.flatnonzero(np.diff(self.array)) + 1])
        return list(zip(self.array[starts].tolist(), np.diff([*starts, len(self)]).tolist(), strict=True))


class RunLengthArray(TokenArray[Number]):
    """Known by its runs of equal numbers alone.

    >>> RunLengthArray([(3, 2), (4, 1)], np.int32)
    (3, 3, 4)
    """

    def __init__(self, runs: Sequence[tuple[Number, int]], kind: Any) -> None:
        """Store ``runs``: (number, how often at least once); neighbours differ."""
        self._runs: list[tuple[Number, int]] = list(runs)
        self.dtype = np.dtype(kind)

    @property
    def array(self) -> np.ndarray:
        return np.repeat(np.array([number for number, _ in self._runs], self.dtype), [count for _, count in self._runs])

    def __len__(self) -> int:
        return sum(count for _, count in self._runs)

    def runs(self) -> list[tuple[Number, int]]:
        return self._runs


def _column(numbers: Iterable[Any], kind: Any) -> TokenArray[Any]:
    """Return a column of this kind: ``numbers`` itself if it is one."""
    if isinstance(numbers, TokenArray) and numbers.dtype == np.dtype(kind):
        return numbers
    return TokenArray(_array(numbers, kind))


def _array(numbers: Iterable[Any], kind: Any) -> np.ndarray:
    if isinstance(numbers, TokenArray):
        return np.asarray(numbers.array, dtype=kind)
    return np.asarray(numbers if isinstance(numbers, (np.ndarray, list, tuple)) else list(numbers), dtype=kind)


def _restored(kind: str, data: bytes) -> TokenArray[Any]:
    return TokenArray(np.frombuffer(data, dtype=kind))
