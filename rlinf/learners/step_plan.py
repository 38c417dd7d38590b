"""The plan of which rank computes which rows in every optimiser step, made from all rows of a batch.

The driver makes it, and then sends each rank its own rows and its parts of the steps. A rank that has the
whole batch makes the same plan for itself. So the gradient does not depend on where the plan was made.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self

import torch
from torch import Tensor

from rlinf.data.advantage_spec import Rows, unprepared
from rlinf.data.batch import Batch, Costs
from rlinf.data.messages import PolicyOutput
from rlinf.data.shards import DataParallelRank, LossCounts, RankBatch, StepShard, StepTotals, answered
from rlinf.learners.partition import micro_batches, minibatches, shares
from rlinf.learners.stage import Stage


@dataclass(frozen=True)
class RowFacts:
    """The numbers of every row by which a batch is cut, and an optimiser step's denominators are made; all [B]."""

    costs: Costs
    tokens: Tensor
    """int32: valid positions."""
    answered: Tensor
    """bool: there is a response, valid or not."""
    has_gradient: Tensor
    """bool: some valid position has an advantage that is not 0. All where there are no advantages yet."""
    rewards: Tensor | None = None
    """int32: rewards with a valid position, where several positions share one."""

    @classmethod
    def of(cls, rows: Rows, costs: Costs) -> Self:
        """Count the rows of a batch, wherever they are."""
        here, pending = unprepared(rows)
        has_gradient, rewards = None if pending is None else pending.has_gradient, None
        if isinstance(here, Batch):
            if has_gradient is None and here.advantages is not None:
                has_gradient = (here.mask & (here.advantages != 0)).any(dim=1)
            if here.positions_per_reward > 1:
                of_rewards = here.mask.unflatten(1, (-1, here.positions_per_reward)).any(dim=2)
                rewards = of_rewards.sum(dim=1, dtype=torch.int32)
        if has_gradient is None:
            has_gradient = torch.ones(here.num_rows, dtype=torch.bool)
        return cls(costs, here.valid_counts.int(), answered(here), has_gradient, rewards)

    @functools.cached_property
    def common_length(self) -> int:
        """The valid positions that every row has; 0 if they differ."""
        least, most = self.tokens.aminmax() if len(self.tokens) else (0, 0)
        return int(least) if int(least) == int(most) else 0


@dataclass(frozen=True)
class OwnRows:
    """The part of a batch that one share is sent."""

    rows: Tensor
    """[b] int64: their numbers in the batch, each once."""
    parts: tuple[StepShard, ...]
    """Rows go by their index in ``rows``, in as few bytes as hold it."""


@dataclass(frozen=True)
class BatchPlan:
    """All parts of all shares: of each optimiser step of an update, or of one evaluation."""

    parts: Sequence[Sequence[StepShard]]
    """For each step, that of each share. Rows go by their number in the batch."""
    steps: Sequence[StepTotals] = ()
    """Of an update."""

    def of_whole(self, batch: Batch, index: int) -> RankBatch:
        """Return the share of a rank that has all rows of ``batch``."""
        return RankBatch(batch, [parts[index] for parts in self.parts], self.steps)

    def by_share(self, facts: RowFacts) -> list[OwnRows]:
        """Return the rows of each share, which receives no others; a share without rows gets one to take part with."""
        spare = facts.answered.int().argmax()[None]
        positions = torch.empty(len(facts.tokens), dtype=torch.int32)
        results = []
        for parts in zip(*self.parts, strict=True):
            used = [rows for part in parts for rows in part.micro_batches]
            rows = torch.cat(used) if used else spare
            if len(parts) > 1:
                rows = rows.unique()
            positions[rows] = torch.arange(len(rows), dtype=torch.int32)
            kind = torch.int16 if len(rows) < 1 << 15 else torch.int32
            renumbered = (tuple(positions[own].to(kind) for own in part.micro_batches) for part in parts)
            shards = (replace(part, micro_batches=own) for part, own in zip(parts, renumbered, strict=True))
            results.append(OwnRows(rows, tuple(shards)))
        return results


class Divides(Protocol):
    """A model, as far as rows are divided by it."""

    @property
    def data_rank(self) -> DataParallelRank: ...

    def costs(self, batch: Batch) -> Costs: ...


class _DividesSteps(Divides, Protocol):
    """A learner, as far as optimiser steps are divided by it."""

    seed: int
    stage: Stage


def evaluation_plan(facts: RowFacts, rank: DataParallelRank) -> BatchPlan:
    """Every row is evaluated once."""
    return BatchPlan([_parts(torch.arange(len(facts.tokens)), facts, rank)])


def division(facts: RowFacts, rank: DataParallelRank) -> BatchPlan:
    """Every row is in one share, which is not cut any further."""
    own = _shares(torch.arange(len(facts.tokens)), facts, rank)
    return BatchPlan([[StepShard((rows,) if len(rows) else (), 1) for rows in own]])


def update_plan(facts: RowFacts, rank: DataParallelRank, *, stage: Stage, seed: int, step: int) -> BatchPlan:
    """All optimiser steps of training iteration ``step``."""
    chooses = "selected" in stage.objective.needs
    parts, steps = [], []
    for epoch in range(stage.epochs):
        for rows in minibatches(len(facts.tokens), parts=stage.minibatches, seed=seed, step=step, epoch=epoch):
            if len(rows):
                rewards = None if facts.rewards is None else LossCounts.of(facts.rewards[rows])
                steps.append(StepTotals(loss_counts(facts, rows), rewards, rows if chooses else None))
                parts.append(_parts(_rows_with_gradient(rows, facts, stage), facts, rank))
    return BatchPlan(parts, steps)


def join_outputs(
    pieces: Sequence[Tensor], outputs: Sequence[PolicyOutput], positions: int
) -> tuple[Tensor, PolicyOutput]:
    """(rows [B'], their columns [B', T] in float32 on the CPU) of the micro-batches ``pieces``.

    ``outputs`` are theirs, then those of blank passes.
    """
    used = outputs[: len(pieces)]
    if not used:
        empty = torch.zeros(0, positions)
        return torch.zeros(0, dtype=torch.int64), PolicyOutput(empty, empty, empty)

    def joined(name: str) -> Any:
        columns = [getattr(output, name) for output in used]
        return None if columns[0] is None else torch.cat(columns).float().cpu()

    return torch.cat(tuple(pieces)), PolicyOutput(joined("logprobs"), joined("entropy"), joined("values"))


def share_of_evaluation(batch: Batch | RankBatch, model: Divides) -> RankBatch:
    """Return this rank's share of an evaluation of ``batch``, which holds every row or only the rank's own."""
    if isinstance(batch, RankBatch):
        return batch
    rank = model.data_rank
    return evaluation_plan(RowFacts.of(batch, model.costs(batch)), rank).of_whole(batch, rank.index)


def share_of_update(batch: Batch | RankBatch, learner: _DividesSteps, *, step: int) -> RankBatch:
    """Return this rank's share of all optimiser steps of training iteration ``step``, in the same way."""
    if isinstance(batch, RankBatch):
        return batch
    rank, facts = learner.data_rank, RowFacts.of(batch, learner.costs(batch))
    return update_plan(facts, rank, stage=learner.stage, seed=learner.seed, step=step).of_whole(batch, rank.index)


def loss_counts(facts: RowFacts, rows: Tensor) -> LossCounts:
    """Compute the denominators of an optimiser step over ``rows``."""
    if facts.common_length:  # always where decisions are rows: nothing to index, nothing to add
        return LossCounts(max(float(len(rows) * facts.common_length), 1.0), max(float(len(rows)), 1.0))
    return LossCounts.of(facts.tokens[rows])


def _rows_with_gradient(rows: Tensor, facts: RowFacts, stage: Stage) -> Tensor:
    """Return the ``rows`` of an optimiser step without those that cannot move the weights.

    If the objective is a multiple of the advantage, a row whose advantages are all 0 has a gradient of exactly 0
    (a group with one reward). It needs no computing. It still counts in the denominators; metrics cover only the
    rows that are left. All rows stay if none would be left, or if entropy or early stopping needs every row.
    """
    needs_all = stage.objective.algorithm.calculate_entropy or stage.early_stop_imp_ratio is not None
    if needs_all or not stage.objective.idle_without_advantage:
        return rows
    has_gradient = facts.has_gradient[rows]
    return rows[has_gradient] if bool(has_gradient.any()) else rows


def _shares(rows: Tensor, facts: RowFacts, rank: DataParallelRank) -> list[Tensor]:
    return shares(rows[facts.answered[rows]] if rank.answered_only else rows, facts.costs, size=rank.size)


def _parts(rows: Tensor, facts: RowFacts, rank: DataParallelRank) -> list[StepShard]:
    """Split ``rows`` into the part of each share; each has at least one pass, in which the ranks meet."""
    cuts = [
        tuple(micro_batches(own, facts.costs, budget=rank.micro_batch_tokens)) for own in _shares(rows, facts, rank)
    ]
    most = max(1, *map(len, cuts))
    return [StepShard(cut, most if rank.alike else max(1, len(cut))) for cut in cuts]
