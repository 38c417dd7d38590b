"""The columnar batch: complete rows for all that compute on them.

Shape legend, used in every docstring of the project:

    B  rows: one response, one episode, or one agent conversation
    T  positions of a row: response tokens, environment decisions, or the finer unit ``logprob_type`` picks
    C  decisions of a row: T of them, unless a decision has several positions
    P  prompt tokens
    K  actions of a chunk, or terms of a reward
    D  dimensions of one action

A row never becomes a Python object: a thousand simulators are a thousand rows of one tensor.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Self

import torch
from torch import Tensor

from rlinf.data.columns import (
    ColumnGroup,
    ColumnKind,
    RewardDetails,
    TurnCredit,
    column,
    groups_of,
    join_columns,
    join_facts,
    kinds_of,
    select_facts,
)
from rlinf.data.inputs import BatchError, Inputs, TextInputs, picked


@dataclass(frozen=True)
class Batch(ColumnGroup):
    """B rows by T positions, with everything that the algorithm layer, the learner and the report read.

    Shapes and dtypes are checked when the batch is made; a wrong one is a :class:`BatchError` that names the column.
    """

    inputs: Inputs
    """What only the policy reads: :class:`TextInputs` or :class:`ObservationInputs`."""
    actions: Tensor = field(metadata=column("BC..."))
    """[B, T] token ids (int64), or [B, C, ...] actions of an environment: one for each of C decisions."""
    mask: Tensor = field(metadata=column("BT"))
    """[B, T] bool, true where the policy really acted (observation tokens inside a conversation are false)."""
    rollout_logprobs: Tensor = field(metadata=column("BT", adds_up=True))
    """[B, T] float32, the behaviour policy's log-probabilities, as the sampler reported them."""
    rewards: Tensor = field(metadata=column("B or BT"))
    """[B] outcome or [B, T] per-position rewards, float32."""
    group_ids: Tensor = field(metadata=column("B"))
    """[B] int64; rows with the same prompt or start state share one. Order and equal sizes are never assumed."""
    policy_version: Tensor = field(metadata=column("BT"))
    """[B, T] int32: the version of the weights that chose each position."""
    fresh: Tensor | None = field(default=None, metadata=column("BT"))
    """[B, T] bool: the weights that are trained chose the position. Left out where they chose all."""
    terminated: Tensor | None = field(default=None, metadata=column("BT"))
    """[B, T] bool: the episode ended in this position by the task's own rules."""
    truncated: Tensor | None = field(default=None, metadata=column("BT"))
    """[B, T] bool: the row was cut in this position (a time or length limit)."""
    old_values: Tensor | None = field(default=None, metadata=column("BT"))
    """[B, T] float32: critic at the position, before the update."""
    bootstrap_values: Tensor | None = field(default=None, metadata=column("BT"))
    """[B, T] float32: critic at the observation after the position; read where ``truncated``, or at a row's last
    position."""
    old_logprobs: Tensor | None = field(default=None, metadata=column("BT", adds_up=True))
    """[B, T] float32: the proximal policy's, recomputed by the learner before the update. Left out where that is a
    single optimiser step, which computes them anyway."""
    ref_logprobs: Tensor | None = field(default=None, metadata=column("BT", adds_up=True))
    """[B, T] float32: the reference policy's."""
    teacher_logprobs: Tensor | None = field(default=None, metadata=column("BT", adds_up=True))
    """[B, T] float32: the teacher's, of the same tokens."""
    advantages: Tensor | None = field(default=None, metadata=column("BT"))
    """[B, T] float32."""
    returns: Tensor | None = field(default=None, metadata=column("BT"))
    """[B, T] float32: regression targets of the critic."""
    reward_details: RewardDetails = field(default_factory=RewardDetails)
    """Process rewards, terms of a reward, the reward of the greedy response and the verifier's verdict."""
    turn_credit: TurnCredit = field(default_factory=TurnCredit)
    """The states, turns and episodes of conversations with several turns."""
    domains: Sequence[str] | None = None
    """[B] names of the task families, each of which may have its rewards normalised on its own."""
    positions_per_reward: int = 1
    """Positions that share a reward (which stands at their first), a value, an advantage and an episode's end."""
    metadata: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """Per-row facts for reports (prompt text, response text, verdict, task id); length B each."""

    def __post_init__(self) -> None:
        if self.mask.ndim != 2 or self.mask.dtype != torch.bool:
            raise BatchError(f"mask must be bool [B, T], got {self.mask.dtype} {tuple(self.mask.shape)}")
        rows, positions = self.mask.shape
        decisions = self.actions.shape[1] if self.actions.ndim > 1 else positions
        if isinstance(self.inputs, TextInputs) or not decisions or positions % decisions:
            decisions = positions
        self.check(rows, positions, decisions)
        if self.positions_per_decision % self.positions_per_reward:
            raise BatchError(
                f"the {self.positions_per_decision} positions of a decision must be a multiple of positions_per_reward "
                f"= {self.positions_per_reward}"
            )
        if self.group_ids.dtype != torch.int64:
            raise BatchError(f"group_ids must be int64, got {self.group_ids.dtype}")
        if self.domains is not None and len(self.domains) != rows:
            raise BatchError(f"domains has {len(self.domains)} entries for {rows} rows")
        self.inputs.check(rows, decisions)
        for name, values in self.metadata.items():
            if len(values) != rows:
                raise BatchError(f"metadata[{name!r}] has {len(values)} entries for {rows} rows")

    @property
    def num_rows(self) -> int:
        return self.mask.shape[0]

    @property
    def num_positions(self) -> int:
        return self.mask.shape[1]

    @property
    def positions_per_decision(self) -> int:
        """T / C: ``actions`` and ``inputs`` have C decisions a row."""
        return self.num_positions // max(1, self.actions.shape[1])

    @property
    def decided(self) -> Tensor:
        """[B, C] bool: the decisions of which a position is true."""
        return self.mask.unflatten(1, (-1, self.positions_per_decision)).any(dim=2)

    def select(self, rows: Tensor | Sequence[int]) -> Self:
        """Select the rows named by an int64 index [B'], in that order."""
        index = torch.as_tensor(rows, dtype=torch.int64)
        # Rows of a batch that was checked fit each other: for small minibatches another check costs as much as they do.
        selected = object.__new__(type(self))
        vars(selected).update(
            vars(self),
            **self.changed(lambda _, tensor: tensor.index_select(0, index.to(tensor.device))),
            **select_facts(self, index),
            inputs=self.inputs.select(index),
        )
        return selected

    def split(self, parts: int) -> list[Self]:
        """``parts`` batches of consecutive rows whose sizes differ by one at most (some empty when B < parts)."""
        return [self.select(chunk) for chunk in torch.arange(self.num_rows).tensor_split(parts)]

    def to(self, device: torch.device | str) -> Self:
        """Return the same batch with every tensor on ``device``."""
        if self.mask.device == torch.device(device):
            return self
        return self.replace(**self.changed(lambda _, tensor: tensor.to(device)), inputs=self.inputs.to(device))

    def decisions_as_rows(self) -> Self:
        """Every true decision as a row of its own, for policies without memory. Outcome rewards stay behind."""
        rows, decisions = self.decided.nonzero(as_tuple=True)
        positions = self.positions_per_decision

        def change(kind: ColumnKind, tensor: Tensor) -> Tensor:
            if kind.axes == "BC...":
                return picked(tensor, rows, decisions)[:, None]
            if kind.has_positions(tensor):
                return picked(tensor.unflatten(1, (-1, positions)), rows, decisions)
            return tensor[rows]

        values = self.changed(change) | {"rewards": torch.zeros(len(rows), device=self.mask.device)}
        inputs = self.inputs.decisions_as_rows(rows, decisions)
        return self.replace(inputs=inputs, domains=None, metadata={}, **values)

    @property
    def proximal_logprobs(self) -> Tensor:
        """[B, T]: the proximal policy's if the learner recomputed them, otherwise those of the one that acted."""
        return self.rollout_logprobs if self.old_logprobs is None else self.old_logprobs

    @property
    def valid_counts(self) -> Tensor:
        """[B] int64: the valid positions of each row."""
        return self.mask.sum(dim=1)

    def keeping(self, kept: Tensor) -> Self:
        """Copy without a valid position in the rows that are not ``kept`` [B] bool."""
        return self.replace(mask=self.mask & kept[:, None])

    def fetch(self) -> Self:
        """Bring the observations here that are still in the workers that made them."""
        inputs = self.inputs.fetched()
        return self if inputs is self.inputs else self.replace(inputs=inputs)

    def by_reward(self) -> Self:
        """Return the same batch with one position for each reward: the log-probabilities of its parts add up.

        What the parts share (:attr:`positions_per_reward`) is what their first one has: actions happen in order, so
        if any part is real, the first one is.
        """
        every = self.positions_per_reward
        if every == 1:
            return self

        def change(kind: ColumnKind, tensor: Tensor) -> Tensor:
            if not kind.has_positions(tensor):
                return tensor
            if kind.adds_up:
                return torch.where(self.mask, tensor, 0.0).unflatten(1, (-1, every)).sum(dim=2)
            return tensor[:, ::every]

        return self.replace(positions_per_reward=1, **self.changed(change))

    def spread(self, column: Tensor | None) -> Tensor | None:
        """Spread a column of :meth:`by_reward` over the positions of this batch: every part has what is its
        reward's."""
        if column is None or self.positions_per_reward == 1:
            return column
        return torch.where(self.mask, column.repeat_interleave(self.positions_per_reward, dim=1), 0.0)


_KINDS: Sequence[type[ColumnGroup]] = (Batch, *groups_of(Batch).values())
OPTIONAL_COLUMNS = frozenset(
    item.name
    for columns in _KINDS
    for item in fields(columns)
    if item.default is None and item.name in kinds_of(columns)
)
"""The tensors that a batch may be without."""


def concatenate(batches: Sequence[Batch]) -> Batch:
    """One batch with the rows of all, padded to the longest T (and, for text, the longest P).

    ``group_ids`` are taken as they are: the caller keeps them distinct between batches. A column that only some
    batches have is a :class:`BatchError`.
    """
    if not batches:
        raise BatchError("there is nothing to concatenate: the list of batches is empty")
    levels = {(batch.positions_per_decision, batch.positions_per_reward) for batch in batches}
    if len(levels) > 1:
        raise BatchError(f"(positions_per_decision, positions_per_reward) differ between the batches: {sorted(levels)}")
    first, positions = batches[0], max(batch.num_positions for batch in batches)
    decisions = positions // first.positions_per_decision
    fitted = [
        batch.replace(inputs=batch.inputs.fit(decisions), **batch.fitted(positions, decisions)) for batch in batches
    ]
    return first.replace(
        inputs=type(first.inputs).join([batch.inputs for batch in fitted]),
        **join_facts(batches),
        **join_columns(fitted),
    )


@dataclass(frozen=True)
class Costs:
    """The costs of a batch's rows to a policy."""

    lengths: Tensor
    """[B] int64 tokens (text) or positions (simulators) of each row on its own."""
    shared: Tensor | None = None
    """[B] int64 tokens of each row that are paid once for all rows of the same owner in a micro-batch."""
    owners: Tensor | None = None
    """[B] int64: rows with the same owner share ``shared`` tokens."""

    @functools.cached_property
    def most(self) -> int:
        """The cost of all rows, if none shared anything."""
        return int(self.lengths.sum())
