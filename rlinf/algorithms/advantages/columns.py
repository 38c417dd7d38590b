"""The columns that advantages are made of: of tokens, or of rows or turns for estimators to which tokens are alike."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

import numpy as np
import torch
from torch import Tensor

from rlinf.algorithms import catalog
from rlinf.algorithms.rewards import row_outcomes
from rlinf.data.batch import Batch
from rlinf.data.columns import RewardDetails
from rlinf.data.remote_rows import RemoteRows

if TYPE_CHECKING:
    from rlinf.schema.algorithm import AlgorithmConfig


@dataclass(frozen=True)
class AdvantageColumns:
    """The columns of whole rows that advantages are made of, as a batch has them: [B, T] unless noted otherwise."""

    rewards: Tensor
    """[B] (the outcome) or [B, T] (the outcome is the row's sum)."""
    mask: Tensor
    group_ids: Tensor
    """[B] int64."""
    values: Tensor | None = None
    terminated: Tensor | None = None
    truncated: Tensor | None = None
    bootstrap_values: Tensor | None = None
    logprobs: Tensor | None = None
    """Of the proximal policy (``Batch.old_logprobs``) where the learner recomputed them, otherwise of the policy that
    acted (``Batch.rollout_logprobs``)."""
    ref_logprobs: Tensor | None = None
    teacher_logprobs: Tensor | None = None
    details: RewardDetails = field(default_factory=RewardDetails)
    """Process rewards, terms and greedy rewards."""
    anchor_ids: Tensor | None = None
    acted: Tensor | None = None
    """The mask before filters took rows out of it."""
    lengths: Tensor | None = None
    """[B] int64: valid positions, if ``mask`` has a shape alone (of :meth:`of_remote`)."""
    acted_lengths: Tensor | None = None
    """The same before filters."""

    @property
    def before_filters(self) -> Tensor:
        """The mask before filters took rows out of it."""
        return self.mask if self.acted is None else self.acted

    def row_lengths(self) -> Tensor:
        """[B] int64: valid positions of each row, those included that a filter took out."""
        if self.acted_lengths is not None:
            return self.acted_lengths
        return self.before_filters.sum(dim=1) if self.lengths is None else self.lengths

    @classmethod
    def of(cls, batch: Batch, rewards: Tensor, *, before: Batch | None = None) -> Self:
        """Take the columns of a batch that an estimator reads; ``rewards`` as filters and norms have left them.

        ``before``: the batch before filters, if these took rows out of it.
        """
        return cls(
            rewards=rewards,
            mask=batch.mask,
            group_ids=batch.group_ids,
            values=batch.old_values,
            terminated=batch.terminated,
            truncated=batch.truncated,
            bootstrap_values=batch.bootstrap_values,
            logprobs=batch.proximal_logprobs,
            ref_logprobs=batch.ref_logprobs,
            teacher_logprobs=batch.teacher_logprobs,
            details=batch.reward_details,
            anchor_ids=batch.turn_credit.anchor_ids,
            acted=None if before is None or before is batch else before.mask,
        )

    @classmethod
    def of_remote(cls, rows: RemoteRows, rewards: Tensor, *, before: RemoteRows, per_row: bool) -> Self:
        """Take what an estimator reads of rows whose tokens are elsewhere; ``before``: the rows before filters.

        ``per_row``: it reads one number a row, so that no flags [B, T] are made.
        """
        # Scale: the flags of 8,192 rows by 8,192 tokens are 67 MB, which an estimator of outcomes does not read.
        shape = torch.empty(rows.num_rows, rows.num_positions, dtype=torch.bool, device="meta")
        flags = dict.fromkeys(("mask", "terminated", "truncated"), shape) if per_row else rows.flags()
        return cls(
            rewards=rewards,
            group_ids=rows.group_ids,
            values=shape if rows.has("old_values") else None,
            details=rows.reward_details,
            anchor_ids=rows.turn_credit.anchor_ids,
            acted=None if rows is before else shape if per_row else before.flags()["mask"],
            lengths=rows.lengths if per_row else None,
            acted_lengths=before.lengths,
            **flags,
        )


@dataclass(frozen=True)
class _Segments:
    """Rows with U positions instead of T: their advantages are those of all tokens that a position stands for."""

    columns: AdvantageColumns
    """[B, U]."""
    tokens: Tensor
    """int64 [B, U]: the valid tokens of each position."""
    starts: Tensor | None
    """int32 [B, U]: the first token of each turn, ascending, T where a row has fewer; None: U is 1, the whole row."""


def broadcast_to_tokens(values: Tensor, starts: Tensor | None, positions: int) -> Tensor:
    """[B, U] -> [B, T]: at each token the number of its turn, or with no ``starts`` that of the row.

    >>> broadcast_to_tokens(torch.tensor([[1., 2.]]), torch.tensor([[0, 2]], dtype=torch.int32), 4)
    tensor([[1., 1., 2., 2.]])
    """
    if starts is None:
        return values.expand(-1, positions)
    every = torch.arange(positions, dtype=starts.dtype, device=starts.device).expand(len(starts), -1).contiguous()
    turn = torch.searchsorted(starts.contiguous(), every, right=True) - 1
    return values.gather(1, turn.clamp(min=0))


def is_per_row(algorithm: AlgorithmConfig, rewards: Tensor, positions: int) -> bool:
    """Whether :func:`to_segments` reads one reward and the number of tokens of each row, and no flag of a token."""
    outcomes = catalog.estimator(algorithm.adv_type).of_outcomes
    return outcomes and rewards.ndim == 1 and not _tokens_are_read_before(algorithm, positions)


def _tokens_are_read_before(algorithm: AlgorithmConfig, positions: int) -> bool:
    """Whether the steps before the estimator read single tokens, or rows have one token at most."""
    penalised = algorithm.kl_coef and catalog.estimator(algorithm.adv_type).penalises_tokens(algorithm)
    return positions == 1 or algorithm.whiten_rewards or bool(penalised)


def to_segments(algorithm: AlgorithmConfig, x: AdvantageColumns) -> _Segments | None:
    """Return ``x`` by rows or turns; None if its estimator, or what comes before it, reads more."""
    entry = catalog.estimator(algorithm.adv_type)
    if _tokens_are_read_before(algorithm, x.mask.shape[1]):
        return None
    if entry.of_outcomes:
        if algorithm.reward_clip and x.rewards.ndim == 2:
            return None
        tokens = x.mask.sum(dim=1) if x.lengths is None else x.lengths
        columns = AdvantageColumns(
            rewards=row_outcomes(x.rewards, x.before_filters),
            mask=(tokens > 0)[:, None],
            group_ids=x.group_ids,
            details=x.details.replace(step_rewards=None),
            lengths=x.row_lengths(),
        )
        return _Segments(columns, tokens[:, None], None)
    return _by_turn(x) if entry.of_turns and x.anchor_ids is not None and x.mask.numel() else None


def _by_turn(x: AdvantageColumns) -> _Segments | None:
    """None if tokens of a turn differ: by a reward or an episode's end before the last one."""
    acted, kept = x.before_filters, x.mask.any(dim=1)
    if acted is not x.mask and not x.mask.equal(acted & kept[:, None]):
        return None
    assert x.anchor_ids is not None
    turns = _TurnPositions.of(acted, x.anchor_ids >= 0)
    if turns is None:
        return None
    rewards = turns.at_ends(x.rewards)
    flags = [turns.at_ends(flag) for flag in (x.terminated, x.truncated) if flag is not None]
    if rewards is None or any(flag is None for flag in flags):
        return None
    spoken = turns.tokens > 0
    columns = AdvantageColumns(
        rewards=rewards,
        terminated=None if x.terminated is None else flags[0],
        truncated=None if x.truncated is None else flags[-1],
        mask=spoken & kept[:, None],
        acted=spoken,
        group_ids=x.group_ids,
        anchor_ids=turns.filled(x.anchor_ids[turns.rows, turns.first], -1),
        lengths=turns.seen[:, -1].long(),
    )
    return _Segments(columns, turns.tokens * kept[:, None], turns.filled(turns.first.int(), x.mask.shape[1]))


@dataclass(frozen=True)
class _TurnPositions:
    """Positions of N turns in rows of T tokens, U turns at most. A turn goes on to the next one's beginning."""

    acted: Tensor
    """bool [B, T]: the valid tokens."""
    seen: Tensor
    """int32 [B, T]: how many of the row's are valid up to here."""
    rows: Tensor
    """int64 [N], ascending."""
    first: Tensor
    """int64 [N]: the first token."""
    number: Tensor
    """int64 [N]: which of the row's turns it is."""
    end: Tensor
    """int32 [B, U]: how many of the row's valid tokens come before the next turn."""
    tokens: Tensor
    """int64 [B, U]: the turn's valid tokens."""

    @classmethod
    def of(cls, acted: Tensor, begins: Tensor) -> Self | None:
        """None if that saves nothing, or valid tokens come before the first turn."""
        rows, first = _true_positions(acted & begins)
        seen = acted.cumsum(dim=1, dtype=torch.int32)
        total = seen[:, -1:]
        counts = torch.bincount(rows, minlength=len(acted))
        most = int(counts.max())
        if not 0 < most < acted.shape[1]:
            return None
        number = torch.arange(len(rows), device=rows.device) - (counts.cumsum(dim=0) - counts)[rows]
        before = total.repeat(1, most)
        before[rows, number] = seen[rows, first] - 1
        if bool(before[:, 0].any()):
            return None
        end = torch.cat([before[:, 1:], total], dim=1)
        return cls(acted, seen, rows, first, number, end, (end - before).long())

    def filled(self, values: Tensor, rest: int) -> Tensor:
        """[N] -> [B, U], with ``rest`` if a row has fewer turns."""
        column = values.new_full(self.end.shape, rest)
        column[self.rows, self.number] = values
        return column

    def at_ends(self, column: Tensor) -> Tensor | None:
        """[B, T] -> [B, U]: the number at each turn's last valid token; None if another has one that is not 0.

        A column [B] is returned as it is."""
        if column.ndim == 1:
            return column
        row, position = _true_positions(self.acted & (column if column.dtype == torch.bool else column != 0))
        width = column.shape[1]
        indices = torch.searchsorted(self.rows * width + self.first, row * width + position, right=True) - 1
        turn = self.number[indices]
        if not self.seen[row, position].equal(self.end[row, turn]):
            return None
        numbers = column.new_zeros(self.end.shape)
        numbers[row, turn] = column[row, position]
        return numbers


def _true_positions(flags: Tensor) -> tuple[Tensor, Tensor]:
    """Row and position, int64 [N] each, where ``flags`` [B, T] are true. A few in many are found faster by numpy."""
    result = torch.from_numpy(np.flatnonzero(flags.cpu().numpy())).to(flags.device)
    return result // flags.shape[1], result % flags.shape[1]
