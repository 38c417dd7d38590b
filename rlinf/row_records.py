"""Rows as records: all columns of a row in one run of bytes, so that any rows of a batch are one piece of memory."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from rlinf.inputs import named_inputs
from rlinf.types import Batch

_INPUT = "inputs."
_ALIGNMENT = 8


@dataclass(frozen=True)
class Field:
    """A column's place in a record."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    """Without [B]."""
    start: int
    size: int
    """Bytes."""

    def of(self, records: Tensor) -> Tensor:
        """The column [b, ...], in the memory of ``records`` uint8 [b, width]."""
        part = records[:, self.start : self.start + self.size]
        return part.view(self.dtype).unflatten(1, self.shape) if self.shape else part.view(self.dtype)[:, 0]


@dataclass(frozen=True)
class RecordLayout:
    """How some columns of a batch of text, and all of its inputs, lie in records."""

    fields: tuple[Field, ...]
    width: int
    positions: int
    """T."""

    @classmethod
    def of(cls, batch: Batch, columns: Collection[str]) -> Self:
        """``columns`` that the batch has not are left out."""
        found: list[Field] = []
        end = 0
        for name, column in _named(batch).items():
            if name not in columns and not name.startswith(_INPUT):
                continue
            size = column[0].numel() * column.element_size()
            found.append(Field(name, column.dtype, tuple(column.shape[1:]), end, size))
            end += -(-size // _ALIGNMENT) * _ALIGNMENT
        return cls(tuple(found), end, batch.num_positions)

    def records(self, batch: Batch, rows: Tensor) -> Tensor:
        """uint8 [b, width]: these rows of ``batch``, in that order."""
        records = torch.empty(len(rows), self.width, dtype=torch.uint8)
        columns = _named(batch)
        for field in self.fields:
            # One row at a time goes from memory to memory; a permuted copy of the column would be a second pass.
            place, column = field.of(records), columns[field.name]
            if field.shape:
                for to, row in zip(place.unbind(), rows.tolist(), strict=True):
                    to.copy_(column[row])
            else:
                place.copy_(column[rows])
        return records

    def batch(self, records: Tensor) -> Batch:
        """The rows back as a batch, in the memory of ``records``. What no batch is without and they have not is 0."""
        found: dict[str, Any] = {field.name: field.of(records) for field in self.fields}
        inputs = {name.removeprefix(_INPUT): found.pop(name) for name in list(found) if name.startswith(_INPUT)}
        rows = torch.zeros(1).expand(len(records))
        positions = torch.zeros(1, 1).expand(len(records), self.positions)
        absent = {
            "actions": torch.zeros(1, 1, dtype=torch.int64).expand(len(records), self.positions),
            "rollout_logprobs": positions,
            "policy_version": positions.int(),
            "rewards": rows,
            "group_ids": rows.long(),
        }
        return Batch(**{**absent, **found}, inputs=named_inputs(inputs))


def _named(batch: Batch) -> dict[str, Tensor]:
    inputs = {_INPUT + name: tensor for name, tensor in batch.inputs.named().items()}
    return {**batch._columns(lambda tensor: tensor), **inputs}
