"""Which rows each rank of a learner works on: what the driver cuts a batch by, so that a rank is sent no others."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rlinf.algorithms import by_row
from rlinf.batch_share import Observed, RowFacts
from rlinf.learners.minibatch import learned_rows, moving_rows
from rlinf.learners.partition import minibatches, shares
from rlinf.learners.stage import Stage
from rlinf.models.decision_rule import DecisionRule
from rlinf.models.packing import text_costs
from rlinf.types import Batch, ObservationInputs, TextInputs

EVALUATED = ("actions", "mask")
"""The columns that ranks read of a batch that they evaluate ..."""
LEARNED = (*EVALUATED, "rollout_logprobs", "old_logprobs", "ref_logprobs", "advantages", "fresh")
"""... of one that they learn from ..."""
OF_A_CRITIC = ("old_values", "returns")
"""... and with a critic."""


@dataclass(frozen=True)
class RowPlan(ABC):
    """The cuts of a learner, as its ranks make them: by the same functions, of the same facts."""

    stages: Sequence[Stage]
    """The first one begins."""
    seed: int
    skips_unanswered: bool
    """Rows without a response, or a decision, are left out (fsdp)."""

    @abstractmethod
    def facts(self, batch: Batch) -> RowFacts:
        """The facts that rows are cut by."""

    @abstractmethod
    def learned(self, batch: Batch, *, stage: str) -> Batch:
        """The batch with the rows that optimiser steps are made of."""

    @abstractmethod
    def observed(self, batch: Batch) -> Observed | None:
        """The observations that running statistics take in after an update; None where none are kept."""

    def evaluated(self, facts: RowFacts, size: int) -> list[Tensor]:
        """The rows of each of ``size`` shares, where all are evaluated once."""
        return self._held([self._cut(torch.arange(len(facts.tokens)), facts, size)], facts)

    def updated(self, facts: RowFacts, size: int, *, stage: str, step: int) -> list[Tensor] | None:
        """The rows that each of ``size`` shares has in any optimiser step of an iteration; None: every row."""
        now = self.stage(stage)
        if "selected" in now.objective.needs:
            return None  # what is treated apart is chosen among all rows of a step
        cuts = []
        for epoch in range(now.epochs):
            for rows in minibatches(len(facts.tokens), parts=now.minibatches, seed=self.seed, step=step, epoch=epoch):
                if len(rows):
                    cuts.append(self._cut(moving_rows(rows, facts, now), facts, size))
        return self._held(cuts, facts)

    def columns(self, stage: str, batch: Batch) -> tuple[str, ...]:
        """The columns of ``batch`` that ranks learn from."""
        critic = OF_A_CRITIC if "returns" in self.stage(stage).objective.needs else ()
        return (*LEARNED, *critic, *(by_row.columns(batch) if batch.estimation is not None else ()))

    def stage(self, name: str) -> Stage:
        return next(one for one in self.stages if one.name == name)

    def _cut(self, rows: Tensor, facts: RowFacts, size: int) -> list[Tensor]:
        if self.skips_unanswered:
            rows = rows[facts.answered[rows]]
        return shares(rows, facts.costs, size=size)

    def _held(self, cuts: Sequence[list[Tensor]], facts: RowFacts) -> list[Tensor]:
        """One share's rows of all ``cuts``, each once; where it has none, one to take part with."""
        spare = facts.answered.int().argmax()[None]
        together = cuts[0] if len(cuts) == 1 else [torch.cat(parts).unique() for parts in zip(*cuts, strict=True)]
        return [rows if len(rows) else spare for rows in together]


@dataclass(frozen=True)
class TextPlan(RowPlan):
    """Rows are responses."""

    packed: bool
    """Rows pay their prompt once for all that share it (`learner.pack`; megatron always does so)."""

    def facts(self, batch: Batch) -> RowFacts:
        return RowFacts.of(batch, text_costs(TextInputs.of(batch.inputs), packed=self.packed))

    def learned(self, batch: Batch, *, stage: str) -> Batch:
        return batch

    def observed(self, batch: Batch) -> None:
        return None


@dataclass(frozen=True)
class DecisionPlan(RowPlan):
    """Rows are parts of episodes, or the decisions of a policy without memory."""

    rule: DecisionRule

    def facts(self, batch: Batch) -> RowFacts:
        return RowFacts.of(batch, self.rule.costs(batch.decided))

    def learned(self, batch: Batch, *, stage: str) -> Batch:
        return learned_rows(batch, self.stage(stage), independent=self.rule.independent)

    def observed(self, batch: Batch) -> Observed | None:
        if not self.rule.observed:
            return None
        leaves = ObservationInputs.of(batch.inputs).observations
        return Observed(ObservationInputs({name: leaves[name] for name in self.rule.observed}), batch.mask)
