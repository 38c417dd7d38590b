"""Columns of a batch: tensors that lead with [B], each with its shape and padding where it is declared."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, Self, TypeVar, cast

import torch
from torch import Tensor

from rlinf.data.inputs import BatchError, fit

T = TypeVar("T")
Axes = Literal["B", "BT", "B or BT", "BK", "BC..."]
"""C counts decisions; of them a row has T, or fewer if a decision has several positions."""


@dataclass(frozen=True)
class ColumnKind:
    """The shape of a column, and how it is padded and merged."""

    axes: Axes
    fill: float = 0.0
    """Pads a row that is shorter than others."""
    adds_up: bool = False
    """Log-probabilities: those of several positions add up to that of all of them."""

    def has_positions(self, column: Tensor) -> bool:
        """Whether dimension 1 of ``column`` is T."""
        return self.axes == "BT" or (self.axes == "B or BT" and column.ndim == 2)

    def misfit(self, column: Tensor, rows: int, positions: int, decisions: int) -> str | None:
        """Describe the shape that ``column`` should have; None if it has it."""
        shape = tuple(column.shape)
        match self.axes:
            case "BT":
                return None if shape == (rows, positions) else f"be [B, T] = [{rows}, {positions}]"
            case "BC...":
                return None if shape[:2] == (rows, decisions) else f"lead with [B, T] = [{rows}, {decisions}]"
            case "B or BT":
                fits = shape in ((rows,), (rows, positions))
                return None if fits else f"be [B] or [B, T] with B={rows}, T={positions}"
            case "BK":
                return None if column.ndim == 2 and len(column) == rows else f"be [B, K] with B={rows}"
        return None if shape == (rows,) else f"be [B={rows}]"


def column(axes: Axes, fill: float = 0.0, *, adds_up: bool = False) -> Mapping[str, ColumnKind]:
    """Make the metadata of a dataclass's field that holds a column."""
    return {"column": ColumnKind(axes, fill, adds_up)}


@dataclass(frozen=True)
class ColumnGroup:
    """Columns of the same B rows; a field may be a group of further columns, whose names are its own."""

    @classmethod
    def of_flat(cls, values: Mapping[str, Any]) -> Self:
        """Build from fields by name, where a column of a group has its own name; the opposite of :meth:`flat`."""
        rest = dict(values)
        groups = {
            group: kind(**{name: rest.pop(name) for name in kinds_of(kind) if name in rest})
            for group, kind in groups_of(cls).items()
            if group not in rest
        }
        return cls(**rest, **groups)

    def flat(self) -> dict[str, Any]:
        """Return all fields by name, with the columns of groups instead of the groups."""
        groups = groups_of(type(self))
        own = {item.name: getattr(self, item.name) for item in fields(self) if item.name not in groups}
        return own | {name: value for group in groups for name, value in getattr(self, group).flat().items()}

    def tensors(self) -> dict[str, Tensor]:
        """Return every tensor that is there by name, those of groups included."""
        return {name: value for name, value in self.flat().items() if isinstance(value, Tensor)}

    def replace(self, **values: Any) -> Self:
        """Return a copy with some fields, or columns of groups, exchanged (checked again)."""
        for group, kind in groups_of(type(self)).items():
            inside = {name: values.pop(name) for name in kinds_of(kind) if name in values}
            if inside:
                values[group] = replace(values.get(group, getattr(self, group)), **inside)
        return replace(self, **values)

    def changed(self, change: Callable[[ColumnKind, Tensor], Tensor]) -> dict[str, Any]:
        """Change every column that is there; return the fields by name."""
        values: dict[str, Any] = {}
        for name, kind in kinds_of(type(self)).items():
            value = getattr(self, name)
            if value is not None:
                values[name] = change(kind, value)
        for group in groups_of(type(self)):
            columns = getattr(self, group)
            inside = columns.changed(change)
            values[group] = replace(columns, **inside) if inside else columns
        return values

    def fitted(self, positions: int, decisions: int) -> dict[str, Any]:
        """Cut or pad every column to T = ``positions`` of C = ``decisions``; return the fields by name."""

        def change(kind: ColumnKind, tensor: Tensor) -> Tensor:
            if kind.has_positions(tensor):
                return fit(tensor, positions, kind.fill)
            return fit(tensor, decisions, kind.fill) if kind.axes == "BC..." else tensor

        return self.changed(change)

    def check(self, rows: int, positions: int, decisions: int) -> None:
        """Check the shapes of all columns.

        :raises BatchError: one has another shape; the message names it.
        """
        for name, kind in kinds_of(type(self)).items():
            tensor = getattr(self, name)
            misfit = None if tensor is None else kind.misfit(tensor, rows, positions, decisions)
            if misfit is not None:
                raise BatchError(f"{name} must {misfit}, got {tuple(tensor.shape)}")
        for group in groups_of(type(self)):
            getattr(self, group).check(rows, positions, decisions)


def _of_class(compute: Callable[[type[ColumnGroup]], T]) -> Callable[[type[ColumnGroup]], T]:
    """Compute once for each class. The type of `functools.cache` takes no class that is a dataclass."""
    return cast(Callable[[type[ColumnGroup]], T], functools.cache(compute))


@_of_class
def kinds_of(columns: type[ColumnGroup]) -> Mapping[str, ColumnKind]:
    """Return the kind of each column by name, without those of groups."""
    return {item.name: item.metadata["column"] for item in fields(columns) if "column" in item.metadata}


@_of_class
def groups_of(columns: type[ColumnGroup]) -> Mapping[str, type[ColumnGroup]]:
    """Return the groups of columns by the names of their fields."""
    made: dict[str, Any] = {item.name: item.default_factory for item in fields(columns)}
    return {name: kind for name, kind in made.items() if isinstance(kind, type) and issubclass(kind, ColumnGroup)}


def join_columns(parts: Sequence[ColumnGroup]) -> dict[str, Any]:
    """Join the rows of all parts, which have the same T and C; return the fields by name.

    :raises BatchError: a column is present in some of the parts only.
    """
    values: dict[str, Any] = {}
    for name, kind in kinds_of(type(parts[0])).items():
        tensors = [getattr(part, name) for part in parts]
        there = [tensor for tensor in tensors if tensor is not None]
        if not there:
            continue
        if len(there) < len(tensors):
            raise BatchError(f"{name} is present in some of the batches only")
        if kind.axes == "BK":
            width = max(tensor.shape[1] for tensor in there)
            there = [fit(tensor, width, kind.fill) for tensor in there]
        values[name] = torch.cat(there)
    for group, own in groups_of(type(parts[0])).items():
        values[group] = own(**join_columns([getattr(part, group) for part in parts]))
    return values


def select_facts(rows: Any, index: Tensor) -> dict[str, Any]:
    """Select the ``domains`` and ``metadata`` of the rows of a batch, here or elsewhere, by an int64 index [B']."""
    numbers = index.tolist() if rows.metadata or rows.domains is not None else []
    return {
        "domains": None if rows.domains is None else [rows.domains[number] for number in numbers],
        "metadata": {name: [values[number] for number in numbers] for name, values in rows.metadata.items()},
    }


def join_facts(parts: Sequence[Any]) -> dict[str, Any]:
    """Join the ``domains`` and ``metadata`` of all parts, rows of batches.

    :raises BatchError: only some of them have domains.
    """
    domains = [part.domains for part in parts if part.domains is not None]
    if 0 < len(domains) < len(parts):
        raise BatchError("domains is present in some of the batches only")
    return {
        "domains": [name for part in domains for name in part] if domains else None,
        "metadata": {name: [value for part in parts for value in part.metadata[name]] for name in parts[0].metadata},
    }


@dataclass(frozen=True)
class RewardDetails(ColumnGroup):
    """The parts of a reward, which some estimators compare one by one, and what else a grader reported.

    A response of two steps, of which a verifier accepts the first: ``step_rewards`` [[nan, 1.0, nan, 0.0]].
    """

    step_rewards: Tensor | None = field(default=None, metadata=column("BT", float("nan")))
    """[B, T] float32: process rewards at the position a step ends in, NaN elsewhere."""
    reward_terms: Tensor | None = field(default=None, metadata=column("BK", float("nan")))
    """[B, K] float32: the terms of a row's reward in the order of its own environment, which is that of its whole
    group; NaN where a term was not measured, and behind the last one."""
    reward_weights: Tensor | None = field(default=None, metadata=column("BK"))
    """[B, K] float32: the weights by which ``reward_terms`` add up to the reward; 0 behind the last one."""
    greedy_rewards: Tensor | None = field(default=None, metadata=column("B"))
    """[B] float32: the reward of the most likely response to the row's prompt."""
    correct: Tensor | None = field(default=None, metadata=column("B"))
    """[B] bool: the verifier's verdict."""


@dataclass(frozen=True)
class TurnCredit(ColumnGroup):
    """The states, turns and episodes of a row, by which credit is divided among the turns of a conversation."""

    anchor_ids: Tensor | None = field(default=None, metadata=column("BT", -1))
    """[B, T] int64: the state that a turn or decision answers, at its first position (equal where the environment
    returned the same observation); -1 elsewhere."""
    turn_ids: Tensor | None = field(default=None, metadata=column("BT", -1))
    """[B, T] int64: the number of the policy's turn in its episode, -1 where the environment wrote."""
    episode_ids: Tensor | None = field(default=None, metadata=column("B"))
    """[B] int64: the episode within the group. Rows with the same ones are branches of an episode, which has one
    reward and counts once; without it every row is an episode."""
