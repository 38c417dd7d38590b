"""Rows of text as bytes: fields of a fixed size first, then what has positions, up to the end of the row alone."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from rlinf.data.advantage_spec import AdvantageSpec, PendingAdvantages, Rows, unprepared
from rlinf.data.batch import Batch
from rlinf.data.inputs import TextInputs, named_inputs
from rlinf.data.ragged import RaggedRows
from rlinf.data.remote_rows import RemoteRows, flags_of

_INPUT, _PENDING = "inputs.", "pending."
_LENGTHS = f"{_INPUT}response_lengths"
_ALIGNMENT = 8
_TOKENS, _MASK = "actions", "mask"
_VALID, _TRUNCATED, _ON_POLICY = "lengths", "truncated_rows", "on_policy"
"""Sent instead of flags [B, T], when a row's mask is true over all of its response or nowhere."""


@dataclass(frozen=True)
class _FixedField:
    """The position of a column in the record of a row."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    """Without [B]."""
    start: int
    size: int
    """Bytes."""

    def of(self, records: Tensor) -> Tensor:
        """Return the column [b, ...], in the memory of ``records`` uint8 [b, width]."""
        part = records[:, self.start : self.start + self.size]
        return part.view(self.dtype).unflatten(1, self.shape) if self.shape else part.view(self.dtype)[:, 0]


@dataclass(frozen=True)
class _RaggedField:
    """A column [B, T] of which a record has the positions of its row."""

    name: str
    dtype: torch.dtype
    """As it travels: token ids as int32."""


@dataclass(frozen=True)
class RowFormat:
    """The layout of the rows of a batch of text: some of its columns, all of its inputs, and pending advantages."""

    fields: tuple[_FixedField, ...]
    width: int
    """Bytes of the fixed fields."""
    ragged: tuple[_RaggedField, ...]
    positions: int
    """T."""

    @classmethod
    def of(cls, rows: Rows, columns: Collection[str]) -> Self:
        """Lay out ``columns``; those that the rows have not, or that are elsewhere, are left out."""
        fields: list[_FixedField] = []
        ragged: list[_RaggedField] = []
        end = 0
        for name, column in _named(rows).items():
            of_positions = tuple(column.shape[1:]) == (rows.num_positions,)
            always = name.startswith((_INPUT, _PENDING)) or name in (_VALID, _TRUNCATED, _ON_POLICY)
            if name.startswith(_INPUT) or (not of_positions and (always or name in columns)):
                size = column[0].numel() * column.element_size()
                fields.append(_FixedField(name, column.dtype, tuple(column.shape[1:]), end, size))
                end += -(-size // _ALIGNMENT) * _ALIGNMENT
            elif always or name in columns:
                ragged.append(_RaggedField(name, torch.int32 if name == _TOKENS else column.dtype))
        return cls(tuple(fields), end, tuple(ragged), rows.num_positions)

    def records(self, rows: Rows, shards: Sequence[Tensor]) -> list[Tensor]:
        """Write uint8 [bytes] for each shard: its rows, in that order."""
        columns, chosen = _named(rows), torch.cat(list(shards))
        fixed = torch.empty(len(chosen), self.width, dtype=torch.uint8)
        for field in self.fields:
            field.of(fixed).copy_(columns[field.name][chosen])
        lengths = columns[_LENGTHS][chosen]
        ends = (self.width + lengths * sum(field.dtype.itemsize for field in self.ragged)).cumsum(0)
        records = np.empty(int(ends[-1]), np.uint8)
        sources = [
            (field.dtype.itemsize, columns[field.name].to(field.dtype).contiguous().numpy().view(np.uint8))
            for field in self.ragged
        ]
        start = 0
        for row, length, own in zip(chosen.tolist(), lengths.tolist(), fixed.numpy(), strict=True):
            records[start : start + self.width] = own
            start += self.width
            for size, column in sources:
                end = start + size * length
                records[start:end] = column[row, : size * length]
                start = end
        last = torch.tensor([len(shard) for shard in shards]).cumsum(0) - 1
        return list(torch.from_numpy(records).tensor_split(ends[last][:-1].tolist()))

    def read(self, records: Tensor, spec: AdvantageSpec | None) -> tuple[Batch, PendingAdvantages | None]:
        """Read the rows back as a batch; ``spec`` is the rule of their pending advantages.

        Padding is 0, and so are the columns that no batch is without and that were not sent.
        """
        columns = self._columns(records.numpy())
        pending = None
        inputs = {name.removeprefix(_INPUT): columns.pop(name) for name in list(columns) if name.startswith(_INPUT)}
        of_pending = {name: columns.pop(name) for name in list(columns) if name.startswith(_PENDING)}
        if spec is not None:
            pending = PendingAdvantages(
                spec, of_pending[f"{_PENDING}rewards"], of_pending.get(f"{_PENDING}segment_starts")
            )
        count = len(inputs["prompt_lengths"])
        none = torch.zeros(1).expand(count)
        positions = torch.zeros(1, 1).expand(count, self.positions)
        absent = {
            "actions": positions.long(),
            _MASK: positions.bool(),
            "rollout_logprobs": positions,
            "policy_version": positions.int(),
            "rewards": none,
            "group_ids": none.long(),
        }
        return Batch.of_flat({**absent, **self._with_flags(columns), "inputs": named_inputs(inputs)}), pending

    def _columns(self, whole: np.ndarray) -> dict[str, Any]:
        """Cut records into columns, by name."""
        lengths = next(field for field in self.fields if field.name == _LENGTHS)
        per_position = sum(field.dtype.itemsize for field in self.ragged)
        rows: list[np.ndarray] = []
        start = 0
        while start < len(whole):
            length = int(whole[start + lengths.start : start + lengths.start + lengths.size].view(np.int64)[0])
            end = start + self.width + length * per_position
            rows.append(whole[start:end])
            start = end
        fixed = torch.from_numpy(np.stack([row[: self.width] for row in rows]))
        columns: dict[str, Any] = {field.name: field.of(fixed) for field in self.fields}
        offset = 0
        for field in self.ragged:
            column = torch.zeros(len(rows), self.positions, dtype=field.dtype)
            for target, row, length in zip(column.numpy(), rows, columns[_LENGTHS].tolist(), strict=True):
                begin = self.width + offset * length
                target[:length] = row[begin : begin + field.dtype.itemsize * length].view(target.dtype)
            offset += field.dtype.itemsize
            columns[field.name] = column.long() if field.name == _TOKENS else column
        return columns

    def _with_flags(self, columns: dict[str, Any]) -> dict[str, Any]:
        """Replace the numbers of rows by the flags [B, T] that they stand for."""
        if _VALID not in columns:
            return columns
        lengths, truncated = columns.pop(_VALID), columns.pop(_TRUNCATED, None)
        current = columns.pop(_ON_POLICY, None)
        flags = flags_of(lengths, torch.zeros_like(lengths).bool() if truncated is None else truncated, self.positions)
        if truncated is None:
            flags = {_MASK: flags[_MASK]}
        if current is not None:
            columns["fresh"] = flags[_MASK] & current[:, None]
        return {**columns, **flags}


def ragged_rows(batch: Batch, columns: Mapping[str, Tensor | None]) -> RaggedRows:
    """``columns`` [B, T] up to the end of each row of a batch of text; those that are None are left out."""
    lengths = TextInputs.of(batch.inputs).response_lengths.tolist()
    return RaggedRows.of_rows(
        {
            name: [own[:length] for own, length in zip(column.numpy(), lengths, strict=True)]
            for name, column in columns.items()
            if column is not None
        }
    )


def _named(rows: Rows) -> dict[str, Tensor]:
    """Every tensor that is here, by its name in a record."""
    here, pending = unprepared(rows)
    columns = here.tensors()
    if pending is not None:
        columns[f"{_PENDING}rewards"] = pending.rewards
        if pending.segment_starts is not None:
            columns[f"{_PENDING}segment_starts"] = pending.segment_starts
    if isinstance(here, RemoteRows):
        # The versions of all tokens of a row are its own; ranks read flags, not versions.
        columns[_TRUNCATED] = columns.pop("truncated")
        del columns["policy_version"]
    inputs = {_INPUT + name: tensor for name, tensor in here.inputs.named().items()}
    valid, lengths = here.valid_counts, inputs[_LENGTHS]
    # Scale: most rows of text are valid throughout, and a number a row suffices for that.
    if isinstance(here, Batch) and bool(((valid == lengths) | (valid == 0)).all()):
        columns[_VALID] = valid
        del columns[_MASK]
    return {**columns, **inputs}
