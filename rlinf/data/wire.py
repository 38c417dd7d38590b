"""Rows as records: what is of a fixed size in one run of bytes a row, what has positions up to the row's end alone."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from rlinf.data.batch import Batch
from rlinf.data.inputs import TextInputs, named_inputs
from rlinf.data.ragged import RaggedRows

_INPUT = "inputs."
_LENGTHS = f"{_INPUT}response_lengths"
_ALIGNMENT = 8
_TOKENS, _MASK = "actions", "mask"
_ENDS = ("valid_positions", "cut")
"""In the place of flags [B, T], where a row's mask is true over all of its response or nowhere."""


@dataclass(frozen=True)
class FixedField:
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
class RaggedField:
    """A column [B, T] of which a record has the positions of its row."""

    name: str
    dtype: torch.dtype
    """As it travels: token ids as int32."""

    def numbers(self, column: Tensor) -> np.ndarray:
        """The column [B, T] as it travels."""
        numbers: np.ndarray = column.to(self.dtype).contiguous().numpy()
        return numbers


@dataclass(frozen=True)
class RowFormat:
    """How some columns of a batch of text, and all of its inputs, lie in records: those of a fixed size first."""

    fields: tuple[FixedField, ...]
    width: int
    """Bytes of the fields."""
    runs: tuple[RaggedField, ...]
    positions: int
    """T."""

    @classmethod
    def of(cls, batch: Batch, columns: Collection[str]) -> Self:
        """``columns`` that the batch has not are left out, and those that lie apart from it."""
        found: list[FixedField] = []
        runs: list[RaggedField] = []
        end = 0
        wanted = {*columns, *_ENDS}
        for name, column in _named(batch).items():
            of_positions = tuple(column.shape[1:]) == (batch.num_positions,)
            if name.startswith(_INPUT) or (name in wanted and not of_positions):
                size = column[0].numel() * column.element_size()
                found.append(FixedField(name, column.dtype, tuple(column.shape[1:]), end, size))
                end += -(-size // _ALIGNMENT) * _ALIGNMENT
            elif name in columns and not column.is_meta:
                runs.append(RaggedField(name, torch.int32 if name == _TOKENS else column.dtype))
        return cls(tuple(found), end, tuple(runs), batch.num_positions)

    def records(self, batch: Batch, shares: Sequence[Tensor]) -> list[Tensor]:
        """uint8 [bytes] for each share: its rows of ``batch``, in that order."""
        columns, rows = _named(batch), torch.cat(list(shares))
        fixed = torch.empty(len(rows), self.width, dtype=torch.uint8)
        for field in self.fields:
            field.of(fixed).copy_(columns[field.name][rows])
        lengths = columns[_LENGTHS][rows]
        ends = (self.width + lengths * sum(run.dtype.itemsize for run in self.runs)).cumsum(0)
        records = np.empty(int(ends[-1]), np.uint8)
        sources = [(run.dtype.itemsize, run.numbers(columns[run.name]).view(np.uint8)) for run in self.runs]
        start = 0
        for row, length, own in zip(rows.tolist(), lengths.tolist(), fixed.numpy(), strict=True):
            records[start : start + self.width] = own
            start += self.width
            for size, column in sources:
                end = start + size * length
                records[start:end] = column[row, : size * length]
                start = end
        last = torch.tensor([len(share) for share in shares]).cumsum(0) - 1
        return list(torch.from_numpy(records).tensor_split(ends[last][:-1].tolist()))

    def batch(self, records: Tensor) -> Batch:
        """The rows back as a batch. Padding is 0, and so is what no batch is without and they have not."""
        whole = records.numpy()
        lengths = next(field for field in self.fields if field.name == _LENGTHS)
        per_position = sum(run.dtype.itemsize for run in self.runs)
        rows: list[np.ndarray] = []
        start = 0
        while start < len(whole):
            length = int(whole[start + lengths.start : start + lengths.start + lengths.size].view(np.int64)[0])
            end = start + self.width + length * per_position
            rows.append(whole[start:end])
            start = end
        fixed = torch.from_numpy(np.stack([row[: self.width] for row in rows]))
        found: dict[str, Any] = {field.name: field.of(fixed) for field in self.fields}
        offset = 0
        for run in self.runs:
            column = torch.zeros(len(rows), self.positions, dtype=run.dtype)
            for place, row, length in zip(column.numpy(), rows, found[_LENGTHS].tolist(), strict=True):
                begin = self.width + offset * length
                place[:length] = row[begin : begin + run.dtype.itemsize * length].view(place.dtype)
            offset += run.dtype.itemsize
            found[run.name] = column.long() if run.name == _TOKENS else column
        inputs = {name.removeprefix(_INPUT): found.pop(name) for name in list(found) if name.startswith(_INPUT)}
        none = torch.zeros(1).expand(len(rows))
        positions = torch.zeros(1, 1).expand(len(rows), self.positions)
        absent = {
            "actions": positions.long(),
            _MASK: positions.bool(),
            "rollout_logprobs": positions,
            "policy_version": positions.int(),
            "rewards": none,
            "group_ids": none.long(),
        }
        return Batch(**{**absent, **found}, inputs=named_inputs(inputs)).with_flags()


def runs_of(batch: Batch, columns: Mapping[str, Tensor | None]) -> RaggedRows:
    """``columns`` [B, T] up to the end of each row of a batch of text; those that are None are left out."""
    lengths = TextInputs.of(batch.inputs).response_lengths.tolist()
    return RaggedRows.of_rows(
        {
            name: [own[:length] for own, length in zip(column.numpy(), lengths, strict=True)]
            for name, column in columns.items()
            if column is not None
        }
    )


def _named(batch: Batch) -> dict[str, Tensor]:
    columns = batch._columns(lambda tensor: tensor)
    inputs = {_INPUT + name: tensor for name, tensor in batch.inputs.named().items()}
    valid, lengths = batch.valid_counts, inputs[_LENGTHS]
    if bool(((valid == lengths) | (valid == 0)).all()):
        columns |= {_ENDS[0]: valid}
        del columns[_MASK]
    return {**columns, **inputs}
