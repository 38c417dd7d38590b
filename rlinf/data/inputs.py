"""Columns that only the policy reads: prompts (:class:`TextInputs`) or observations (:class:`ObservationInputs`)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Protocol, Self

import torch
from torch import Tensor

_NEXT = "next_"
"""Before a leaf's name: that of the observation that follows."""
_SINGLE = {
    "episode_starts": "episode_start",
    "recurrent_state": "recurrent_state",
    "executed": "executed",
    "row_refs": "row_refs",
}
"""Attributes of observation inputs that are one tensor, and their names in files."""
ROW_BITS = 32
"""Bits for the row in a reference to a row of a store; the number of the store stands above them."""


class BatchError(ValueError):
    """A column whose shape or dtype does not fit the batch; the message names the column."""


class Inputs(ABC):
    """Tensors that lead with [B], the rows of a batch. Methods return new inputs."""

    @classmethod
    def of(cls, inputs: Inputs) -> Self:
        """Return ``inputs``, if they are of this kind.

        :raises BatchError: they are of another: a policy of text was given observations, or the other way round.
        """
        if not isinstance(inputs, cls):
            raise BatchError(f"the policy reads {cls.__name__}, and the batch has {type(inputs).__name__}")
        return inputs

    @abstractmethod
    def named(self) -> dict[str, Tensor]:
        """Every tensor that is there, by its name in files."""

    @abstractmethod
    def map(self, change: Callable[[Tensor], Tensor]) -> Self:
        """Change every tensor."""

    @abstractmethod
    def fit(self, decisions: int) -> Self:
        """Cuts or pads to T = ``decisions`` what has a T."""

    @abstractmethod
    def decisions_as_rows(self, rows: Tensor, decisions: Tensor) -> Self:
        """Make each of the decisions (``rows[i]``, ``decisions[i]``) a row with T = 1."""

    @classmethod
    @abstractmethod
    def join(cls, parts: Sequence[Inputs]) -> Self:
        """Join the rows of all parts, which have the same T. A tensor that only some have is a :class:`BatchError`."""

    def check(self, rows: int, decisions: int) -> None:
        """Check that all tensors lead with B = ``rows``, or with [B, C] = [``rows``, ``decisions``].

        :raises BatchError: one does not; the message names it.
        """
        for name, tensor in self.named().items():
            if tensor.shape[:1] != (rows,):
                raise BatchError(f"inputs: {name} must lead with B={rows}, got {tuple(tensor.shape)}")

    def select(self, index: Tensor) -> Self:
        """Select the rows named by an int64 index [B']."""
        return self.map(lambda tensor: tensor.index_select(0, index.to(tensor.device)))

    def to(self, device: torch.device | str) -> Self:
        return self.map(lambda tensor: tensor.to(device))

    def fetched(self) -> Self:
        """Fetch all tensors to this process, wherever they are now."""
        return self


class LeafSource(Protocol):
    """Leaves of observations [n, ...] by name, where the worker that made them has put them."""

    def whole(self) -> Any:
        """All rows: a worker that is given this in a call is given the mapping."""

    def pieces(self, rows: Sequence[Tensor]) -> Callable[[], list[Any]]:
        """Cut out the same of these rows int64 [n] each, where the leaves are stored. Calling what is returned
        waits."""

    def fetch(self) -> Mapping[str, Tensor]:
        """All rows, here."""


@dataclass(frozen=True)
class TextInputs(Inputs):
    """The prompts of responses, whose tokens are the batch's actions."""

    prompt_ids: Tensor
    """[B, P] int64, right-padded."""
    prompt_lengths: Tensor
    """[B] int64."""
    response_lengths: Tensor
    """[B] int64."""
    labels: Tensor | None = None
    """[B, T] float32, for a reward model: the targets of its scores."""
    pictures: Tensor | None = None
    """[B, W] uint8, where a row has pictures: their addresses (:mod:`rlinf.data.pictures`), a line each, then 0."""
    hinted_ids: Tensor | None = None
    """[B, H] int64, right-padded: the prompts that the teacher reads (`teacher.hint`)."""
    hinted_lengths: Tensor | None = None
    """[B] int64; 0: the row has no hint."""
    routes: Tensor | None = None
    """[B, L, E] int16: the experts that the sampler sent each token to, by its position in prompt and response
    together, layer after layer (:mod:`rlinf.models.routing`); -1 where they are not known."""

    def hinted(self) -> tuple[TextInputs, Tensor]:
        """Return the same responses behind the prompts with hints, and which rows have one [B] bool.

        A row without a hint keeps its own prompt."""
        ids, lengths = self._hints()
        has, width = lengths > 0, max(self.prompt_ids.shape[1], ids.shape[1])
        prompts = torch.where(has[:, None], fit(ids, width, 0), fit(self.prompt_ids, width, 0))
        prompt_lengths = torch.where(has, lengths, self.prompt_lengths)
        # Routes are those of the policy's own prompt.
        return replace(self.without_hints(), prompt_ids=prompts, prompt_lengths=prompt_lengths, routes=None), has

    def _hints(self) -> tuple[Tensor, Tensor]:
        """Return the teacher's prompts and their lengths; of length 0 without the columns."""
        if self.hinted_ids is None or self.hinted_lengths is None:
            return torch.zeros_like(self.prompt_ids[:, :1]), torch.zeros_like(self.prompt_lengths)
        return self.hinted_ids, self.hinted_lengths

    def without_hints(self) -> TextInputs:
        """Return the inputs as the policy reads them."""
        return replace(self, hinted_ids=None, hinted_lengths=None)

    def picture_lists(self) -> list[list[str]]:
        """[B] addresses of the pictures of each row, in their order; empty where no row has any."""
        if self.pictures is None:
            return []
        lines = (bytes(row).rstrip(b"\0").decode() for row in self.pictures.cpu().numpy())
        return [row.split("\n") if row else [] for row in lines]

    def named(self) -> dict[str, Tensor]:
        tensors = {item.name: getattr(self, item.name) for item in fields(self)}
        return {name: tensor for name, tensor in tensors.items() if tensor is not None}

    def map(self, change: Callable[[Tensor], Tensor]) -> Self:
        changed: dict[str, Any] = {name: change(tensor) for name, tensor in self.named().items()}
        return replace(self, **changed)

    def fit(self, decisions: int) -> Self:
        return self if self.labels is None else replace(self, labels=fit(self.labels, decisions, 0))

    def decisions_as_rows(self, rows: Tensor, decisions: Tensor) -> Self:
        """Raise :class:`BatchError`: a token depends on those before it."""
        raise BatchError("the tokens of a response cannot be rows of their own")

    @classmethod
    def join(cls, parts: Sequence[Inputs]) -> Self:
        every = [cls.of(part) for part in parts]
        width = max(part.prompt_ids.shape[1] for part in every)
        wide = [replace(part, prompt_ids=fit(part.prompt_ids, width, 0)) for part in every]
        if any(part.hinted_ids is not None for part in every):
            hints = [part._hints() for part in every]
            reach = max(ids.shape[1] for ids, _ in hints)
            wide = [
                replace(part, hinted_ids=fit(ids, reach, 0), hinted_lengths=lengths)
                for part, (ids, lengths) in zip(wide, hints, strict=True)
            ]
        if any(part.pictures is not None for part in every):
            columns = [picture_column([()]) if part.pictures is None else part.pictures for part in every]
            reach = max(column.shape[1] for column in columns)
            rows = [column.expand(len(part.prompt_ids), -1) for column, part in zip(columns, every, strict=True)]
            wide = [replace(part, pictures=fit(own, reach, 0)) for part, own in zip(wide, rows, strict=True)]
        longest = max([0, *(part.routes.shape[1] for part in every if part.routes is not None)])
        wide = [part if part.routes is None else replace(part, routes=fit(part.routes, longest, -1)) for part in wide]
        return cls(**dict[str, Any](_joined([part.named() for part in wide])))


@dataclass(frozen=True)
class ObservationInputs(Inputs):
    """The observations that decisions were made at; T counts decisions here."""

    observations: Mapping[str, Tensor]
    """[B, T, ...] by leaf (:mod:`rlinf.data.spaces`): ``observation``, or ``observation.<key>`` of Dict spaces."""
    next_observations: Mapping[str, Tensor] = field(default_factory=dict)
    """[B, T, ...] after each decision, by the same names; only a replay buffer requires them."""
    episode_starts: Tensor | None = None
    """[B, T] bool, for recurrent policies: the decision is the first of its episode."""
    recurrent_state: Tensor | None = None
    """[B, S] before the first decision."""
    executed: Tensor | None = None
    """[B, T, K] bool, for chunks of K actions: those that were carried out before the episode ended."""
    row_refs: Tensor | None = None
    """[B, T] int64, where some leaves are stored outside the batch: the row of a source that has them, with the number
    of the source in the upper half; -1 where there is no decision."""
    sources: tuple[LeafSource, ...] = ()
    """Known to the driver alone."""

    def named(self) -> dict[str, Tensor]:
        single = {name: getattr(self, attribute) for attribute, name in _SINGLE.items()}
        return {
            **self.observations,
            **{_NEXT + name: leaf for name, leaf in self.next_observations.items()},
            **{name: tensor for name, tensor in single.items() if tensor is not None},
        }

    def check(self, rows: int, decisions: int) -> None:
        super().check(rows, decisions)
        for name, tensor in self.named().items():
            if name != "recurrent_state" and tensor.shape[1:2] != (decisions,):
                expected = f"lead with [B, C] = [{rows}, {decisions}] as actions do"
                raise BatchError(f"inputs: {name} must {expected}, got {tuple(tensor.shape)}")

    def map(self, change: Callable[[Tensor], Tensor]) -> Self:
        changed = {name: change(tensor) for name, tensor in self.named().items()}
        return replace(self, **_observation_fields(changed))

    def fit(self, decisions: int) -> Self:
        fitted = self._map_decisions(lambda tensor: fit(tensor, decisions, 0))
        return fitted if self.row_refs is None else replace(fitted, row_refs=fit(self.row_refs, decisions, -1))

    def decisions_as_rows(self, rows: Tensor, decisions: Tensor) -> Self:
        return replace(
            self._map_decisions(lambda tensor: picked(tensor, rows, decisions)[:, None]), recurrent_state=None
        )

    @classmethod
    def join(cls, parts: Sequence[Inputs]) -> Self:
        every = [cls.of(part) for part in parts]
        sources = tuple(dict.fromkeys(source for part in every for source in part.sources))
        moved = [
            part
            if part.row_refs is None
            else replace(part, row_refs=numbered_among(sources, part.sources, part.row_refs))
            for part in every
        ]
        return cls(**_observation_fields(_joined([part.named() for part in moved])), sources=sources)

    def with_row_refs(self, names: Collection[str], refs: Tensor) -> Self:
        """Return the inputs without these leaves, which are stored separately, at the references ``refs`` [B, T]."""
        here = {name: tensor for name, tensor in self.named().items() if name not in names}
        return type(self)(**_observation_fields({**here, "row_refs": refs}))

    def requested_rows(self) -> list[tuple[int, Tensor]]:
        """List (number of a source, its rows [n]) for the decisions here, in their order; empty without references.

        If there is no decision, the list has source 0 with no rows: that still gives the shapes of leaves.
        """
        if self.row_refs is None:
            return []
        refs = self.row_refs[self.row_refs >= 0]
        source, row = refs >> ROW_BITS, refs & (1 << ROW_BITS) - 1
        return [(number, row[source == number]) for number in source.unique().tolist()] or [(0, row)]

    def with_leaves(self, parts: Sequence[Mapping[str, Tensor]]) -> Self:
        """With the leaves [n, ...] of each entry of :meth:`requested_rows` at their decisions, zeros elsewhere."""
        if self.row_refs is None:
            return self
        flat = self.row_refs.flatten()
        numbers = torch.where(flat < 0, -1, flat >> ROW_BITS)
        at = [(numbers == number).nonzero()[:, 0] for number, _ in self.requested_rows()]
        leaves: dict[str, Tensor] = {}
        for name, like in parts[0].items():
            if len(like) == len(flat):
                leaves[name] = like
                continue
            make = torch.zeros if bool((flat < 0).any()) else torch.empty
            leaves[name] = make(len(flat), *like.shape[1:], dtype=like.dtype)
            for rows, part in zip(at, parts, strict=True):
                leaves[name].numpy()[rows.numpy()] = part[name].numpy()  # torch copies them byte by byte
        shaped = {name: leaf.unflatten(0, self.row_refs.shape) for name, leaf in leaves.items()}
        here = replace(self, row_refs=None, sources=())
        return type(self)(**_observation_fields({**here.named(), **shaped}))

    def with_rows_of(self, sources: Sequence[Mapping[str, Tensor]]) -> Self:
        """As :meth:`with_leaves`, out of all rows of all sources."""
        return self.with_leaves([leaves_of_rows([rows], sources[number])[0] for number, rows in self.requested_rows()])

    def fetched(self) -> Self:
        return self.with_rows_of([source.fetch() for source in self.sources])

    def _map_decisions(self, change: Callable[[Tensor], Tensor]) -> Self:
        """Change every tensor that has a T."""
        without_state = replace(self, recurrent_state=None)
        return replace(without_state.map(change), recurrent_state=self.recurrent_state)


def picture_column(rows: Sequence[Sequence[str]]) -> Tensor:
    """``TextInputs.pictures`` of the rows' addresses."""
    lines = ["\n".join(row).encode() for row in rows]
    width = max([1, *map(len, lines)])
    padded = bytearray(b"".join(line.ljust(width, b"\0") for line in lines))
    return torch.frombuffer(padded, dtype=torch.uint8).view(len(lines), width)


def numbered_among(sources: Sequence[Any], own: Sequence[Any], refs: Tensor) -> Tensor:
    """Renumber references ``refs`` to rows of ``own`` sources as references to ``sources``, which contain ``own``."""
    if not own:
        return refs
    numbers = torch.tensor([sources.index(source) for source in own])
    moved = (numbers[(refs >> ROW_BITS).clamp(min=0)] << ROW_BITS) + (refs & (1 << ROW_BITS) - 1)
    return torch.where(refs < 0, -1, moved)


def named_inputs(named: Mapping[str, Tensor]) -> Inputs:
    """Build the inputs of which :meth:`Inputs.named` gave ``named``."""
    if "prompt_ids" in named:
        return TextInputs(**dict[str, Any](named))
    return ObservationInputs(**_observation_fields(named))


def picked(tensor: Tensor, rows: Tensor, decisions: Tensor) -> Tensor:
    """``tensor[rows, decisions]`` [n, ...] of a tensor [B, T, ...]. Torch takes seven times as long for that of images:
    it copies them byte by byte.
    """
    return tensor.flatten(0, 1).index_select(0, rows * tensor.shape[1] + decisions)


def leaves_of_rows(rows: Sequence[Tensor], leaves: Mapping[str, Tensor]) -> list[dict[str, Tensor]]:
    """For each of ``rows`` int64 [n]: those rows of all leaves; the leaves themselves if these are all, in order."""

    def chosen(leaf: Tensor, own: Tensor) -> Tensor:
        everything = len(own) == len(leaf) and own.equal(torch.arange(len(own)))
        return leaf if everything else leaf.index_select(0, own)

    return [{name: chosen(leaf, own) for name, leaf in leaves.items()} for own in rows]


def fit(tensor: Tensor, length: int, fill: float) -> Tensor:
    """Cuts or pads dimension 1 to ``length``."""
    have = tensor.shape[1]
    if have >= length:
        return tensor[:, :length]
    pad = tensor.new_full((tensor.shape[0], length - have, *tensor.shape[2:]), fill)
    return torch.cat([tensor, pad], dim=1)


def _joined(parts: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    names = {name for part in parts for name in part}
    for name in sorted(names):
        if any(name not in part for part in parts):
            raise BatchError(f"inputs: {name} is present in some of the batches only")
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}


def _observation_fields(named: Mapping[str, Tensor]) -> dict[str, Any]:
    rest = dict(named)
    single = {attribute: rest.pop(name, None) for attribute, name in _SINGLE.items()}
    following = {name.removeprefix(_NEXT): rest.pop(name) for name in named if name.startswith(_NEXT)}
    return {"observations": rest, "next_observations": following, **single}
