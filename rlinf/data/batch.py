"""The columnar batch: complete rows for all that compute on them.

Shape legend, used in every docstring of the project:

    B  rows: one response, one episode, or one agent conversation
    T  positions of a row: response tokens, environment decisions, or the finer unit ``logprob_type`` picks
    P  prompt tokens
    K  actions of a chunk, or terms of a reward
    D  dimensions of one action

A row never becomes a Python object: a thousand simulators are a thousand rows of one tensor.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self

import torch
from torch import Tensor

from rlinf.data.inputs import BatchError, Inputs, fit, picked

# The per-position columns [B, T], and what a short row is padded with when T grows:
_POSITION_FILL: dict[str, float] = {
    "mask": False,
    "rollout_logprobs": 0.0,
    "old_logprobs": 0.0,
    "ref_logprobs": 0.0,
    "teacher_logprobs": 0.0,
    "old_values": 0.0,
    "bootstrap_values": 0.0,
    "step_rewards": float("nan"),
    "terminated": False,
    "truncated": False,
    "advantages": 0.0,
    "returns": 0.0,
    "policy_version": 0,
    "fresh": False,
    "anchor_ids": -1,
    "turn_ids": -1,
}
# The columns [B].
_PER_ROW = ("group_ids", "episode_ids", "greedy_rewards", "correct")
TERM_FILL = {"reward_terms": float("nan"), "reward_weights": 0.0}
"""The columns [B, K], and what a row with fewer terms is padded with."""


@dataclass(frozen=True)
class Batch:
    """B rows by T positions, with everything that the algorithm layer, the learner and the report read.

    Shapes and dtypes are checked when the batch is made; a wrong one is a :class:`BatchError` that names the column.
    """

    inputs: Inputs
    """What only the policy reads: :class:`TextInputs` or :class:`ObservationInputs`."""
    actions: Tensor
    """[B, T] token ids (int64), or [B, T, ...] actions of an environment (one for each of its decisions)."""
    mask: Tensor
    """[B, T] bool, true where the policy really acted (observation tokens inside a conversation are false)."""
    rollout_logprobs: Tensor
    """[B, T] float32, the behaviour policy's log-probabilities, as the sampler reported them."""
    rewards: Tensor
    """[B] outcome or [B, T] per-position rewards, float32."""
    group_ids: Tensor
    """[B] int64; rows with the same prompt or start state share one. Order and equal sizes are never assumed."""
    policy_version: Tensor
    """[B, T] int32: the version of the weights that chose each position."""
    fresh: Tensor | None = None
    """[B, T] bool: the weights that are trained chose the position. Left out where they chose all."""
    terminated: Tensor | None = None
    """[B, T] bool: the episode ended in this position by the task's own rules."""
    truncated: Tensor | None = None
    """[B, T] bool: the row was cut in this position (a time or length limit)."""
    old_values: Tensor | None = None
    """[B, T] float32: critic at the position, before the update."""
    bootstrap_values: Tensor | None = None
    """[B, T] float32: critic at the observation after the position; read where ``truncated``, or at a row's last
    position."""
    step_rewards: Tensor | None = None
    """[B, T] float32: process rewards at the position a step ends in, NaN elsewhere."""
    old_logprobs: Tensor | None = None
    """[B, T] float32: the proximal policy's, recomputed by the learner before the update. Left out where that is a
    single optimiser step, which computes them anyway."""
    ref_logprobs: Tensor | None = None
    """[B, T] float32: the reference policy's."""
    teacher_logprobs: Tensor | None = None
    """[B, T] float32: the teacher's, of the same tokens."""
    advantages: Tensor | None = None
    """[B, T] float32."""
    returns: Tensor | None = None
    """[B, T] float32: regression targets of the critic."""
    greedy_rewards: Tensor | None = None
    """[B] float32: the reward of the most likely response to the row's prompt."""
    reward_terms: Tensor | None = None
    """[B, K] float32: the terms of a row's reward in the order of its own environment, which is that of its whole
    group; NaN where a term was not measured, and behind the last one."""
    reward_weights: Tensor | None = None
    """[B, K] float32: the weights by which they add up to the reward; 0 behind the last one."""
    anchor_ids: Tensor | None = None
    """[B, T] int64: the state that a turn or decision answers, at its first position (equal where the environment said
    or showed the same); -1 elsewhere."""
    episode_ids: Tensor | None = None
    """[B] int64: the episode within the group. Rows with the same ones are branches of an episode, which has one reward
    and counts once; without it every row is an episode."""
    turn_ids: Tensor | None = None
    """[B, T] int64: the number of the policy's turn in its episode, -1 where the policy did not speak."""
    correct: Tensor | None = None
    """[B] bool: the verifier's verdict."""
    domains: Sequence[str] | None = None
    """[B] names of the task families, whose rewards may be normalised apart."""
    positions_per_decision: int = 1
    """Positions of one decision: ``actions`` and ``inputs`` have T / positions_per_decision of them."""
    positions_per_reward: int = 1
    """Positions that share a reward (which stands at their first), a value, an advantage and an episode's end."""
    metadata: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """Per-row facts for reports (prompt text, response text, verdict, task id); length B each."""

    def __post_init__(self) -> None:
        if self.mask.ndim != 2 or self.mask.dtype != torch.bool:
            raise BatchError(f"mask must be bool [B, T], got {self.mask.dtype} {tuple(self.mask.shape)}")
        rows, positions = self.mask.shape
        for name in _POSITION_FILL:
            column = getattr(self, name)
            if column is not None and tuple(column.shape) != (rows, positions):
                raise BatchError(f"{name} must be [B, T] = [{rows}, {positions}], got {tuple(column.shape)}")
        if positions % self.positions_per_decision or self.positions_per_decision % self.positions_per_reward:
            raise BatchError(
                f"T = {positions} must be a multiple of positions_per_decision = {self.positions_per_decision}, "
                f"and that of positions_per_reward = {self.positions_per_reward}"
            )
        decisions = positions // self.positions_per_decision
        if tuple(self.actions.shape[:2]) != (rows, decisions):
            raise BatchError(f"actions must lead with [B, T] = [{rows}, {decisions}], got {tuple(self.actions.shape)}")
        if tuple(self.rewards.shape) not in ((rows,), (rows, positions)):
            raise BatchError(
                f"rewards must be [B] or [B, T] with B={rows}, T={positions}, got {tuple(self.rewards.shape)}"
            )
        for name in _PER_ROW:
            column = getattr(self, name)
            if column is not None and tuple(column.shape) != (rows,):
                raise BatchError(f"{name} must be [B={rows}], got {tuple(column.shape)}")
        for name in TERM_FILL:
            column = getattr(self, name)
            if column is not None and (column.ndim != 2 or len(column) != rows):
                raise BatchError(f"{name} must be [B, K] with B={rows}, got {tuple(column.shape)}")
        if self.group_ids.dtype != torch.int64:
            raise BatchError(f"group_ids must be int64, got {self.group_ids.dtype}")
        if self.domains is not None and len(self.domains) != rows:
            raise BatchError(f"domains has {len(self.domains)} entries for {rows} rows")
        self.inputs.check(rows)
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
    def decided(self) -> Tensor:
        """[B, T / positions_per_decision] bool: the decisions of which a position is true."""
        return self.mask.unflatten(1, (-1, self.positions_per_decision)).any(dim=2)

    def replace(self, **columns: Any) -> Self:
        """Return a copy with some columns exchanged (checked again)."""
        return replace(self, **columns)

    def select(self, rows: Tensor | Sequence[int]) -> Self:
        """Select the rows named by an int64 index [B'], in that order."""
        index = torch.as_tensor(rows, dtype=torch.int64)
        places = index.tolist() if self.metadata or self.domains is not None else []
        # Rows of a batch that was checked fit each other: for small minibatches another check costs as much as they do.
        selected = object.__new__(type(self))
        vars(selected).update(
            vars(self),
            **self._columns(lambda tensor: tensor.index_select(0, index.to(tensor.device))),
            inputs=self.inputs.select(index),
            domains=None if self.domains is None else [self.domains[i] for i in places],
            metadata={name: [values[i] for i in places] for name, values in self.metadata.items()},
        )
        return selected

    def split(self, parts: int) -> list[Self]:
        """``parts`` batches of consecutive rows whose sizes differ by one at most (some empty when B < parts)."""
        return [self.select(chunk) for chunk in torch.arange(self.num_rows).tensor_split(parts)]

    def to(self, device: torch.device | str) -> Self:
        """Return the same batch with every tensor on ``device``."""
        if self.mask.device == torch.device(device):
            return self
        return self.replace(**self._columns(lambda tensor: tensor.to(device)), inputs=self.inputs.to(device))

    def decisions_as_rows(self) -> Self:
        """Every true decision as a row of its own, for policies without memory. Outcome rewards stay behind."""
        rows, decisions = self.decided.nonzero(as_tuple=True)
        columns: dict[str, Any] = {"actions": picked(self.actions, rows, decisions)[:, None]}
        for name in _POSITION_FILL:
            column = getattr(self, name)
            if column is not None:
                column = picked(column.unflatten(1, (-1, self.positions_per_decision)), rows, decisions)
            columns[name] = column
        inputs = self.inputs.decisions_as_rows(rows, decisions)
        for name in (*_PER_ROW, *TERM_FILL):
            column = getattr(self, name)
            columns[name] = None if column is None else column[rows]
        rewards = torch.zeros(len(rows), device=self.mask.device)
        return self.replace(inputs=inputs, rewards=rewards, domains=None, metadata={}, **columns)

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
        columns: dict[str, Any] = {}
        for name in ("rewards", *_POSITION_FILL):
            column = getattr(self, name)
            if column is None or column.ndim == 1:
                continue
            if name.endswith("logprobs"):
                columns[name] = torch.where(self.mask, column, 0.0).unflatten(1, (-1, every)).sum(dim=2)
            else:
                columns[name] = column[:, ::every]
        return self.replace(
            positions_per_decision=self.positions_per_decision // every, positions_per_reward=1, **columns
        )

    def spread(self, column: Tensor | None) -> Tensor | None:
        """Spread a column of :meth:`by_reward` over the positions of this batch: every part has what is its
        reward's."""
        if column is None or self.positions_per_reward == 1:
            return column
        return torch.where(self.mask, column.repeat_interleave(self.positions_per_reward, dim=1), 0.0)

    def _positions_of(self, length: int) -> Self:
        """Cut or pad to ``length`` positions of whole decisions."""
        decisions = length // self.positions_per_decision
        columns: dict[str, Any] = {"actions": fit(self.actions, decisions, 0)}
        for name in ("rewards", *_POSITION_FILL):
            column = getattr(self, name)
            if column is None or (name == "rewards" and column.ndim == 1):
                continue
            columns[name] = fit(column, length, _POSITION_FILL.get(name, 0))
        return self.replace(inputs=self.inputs.fit(decisions), **columns)

    def _columns(self, change: Callable[[Tensor], Tensor]) -> dict[str, Tensor]:
        """Return the columns that are tensors, changed."""
        return {name: change(column) for name, column in vars(self).items() if isinstance(column, Tensor)}


OPTIONAL_COLUMNS = frozenset(item.name for item in fields(Batch) if item.default is None and item.name != "domains")
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
    positions = max(batch.num_positions for batch in batches)
    fitted = [batch._positions_of(positions) for batch in batches]
    columns: dict[str, Any] = {}
    for item in fields(Batch):
        values = [getattr(batch, item.name) for batch in fitted]
        if isinstance(values[0], Tensor) or any(value is None for value in values):
            missing = [value is None for value in values]
            if any(missing) and not all(missing):
                raise BatchError(f"{item.name} is present in some of the batches only")
            if item.name in TERM_FILL and not all(missing):
                width = max(value.shape[1] for value in values)
                values = [fit(value, width, TERM_FILL[item.name]) for value in values]
            columns[item.name] = None if all(missing) else torch.cat(values)
    inputs = type(fitted[0].inputs).join([batch.inputs for batch in fitted])
    if fitted[0].domains is not None:
        columns["domains"] = [domain for batch in fitted for domain in batch.domains or ()]
    metadata = {name: [v for batch in fitted for v in batch.metadata[name]] for name in fitted[0].metadata}
    return fitted[0].replace(inputs=inputs, metadata=metadata, **columns)


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
