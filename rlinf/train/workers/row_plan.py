"""Rules by which the driver cuts a batch, so that each rank of a learner is sent its own rows and no others."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from rlinf.algorithms.advantages import distributed
from rlinf.data.advantage_spec import PreparedRows, Rows, unprepared
from rlinf.data.batch import Batch
from rlinf.data.inputs import ObservationInputs, TextInputs
from rlinf.data.shards import DataParallelRank, NormalizerUpdate
from rlinf.learners.minibatch import learned_rows
from rlinf.learners.stage import Stage
from rlinf.learners.step_plan import BatchPlan, RowFacts, update_plan
from rlinf.models.decision_rule import DecisionRule
from rlinf.models.packing import text_costs

EVALUATED = ("actions", "mask")
"""The columns that ranks read of a batch that they evaluate ..."""
KEPT = (*EVALUATED, "rollout_logprobs", "fresh")
"""... where they keep what they find, and compare it ..."""
LEARNED = (*EVALUATED, "rollout_logprobs", "old_logprobs", "ref_logprobs", "advantages", "fresh")
"""... of one that they learn from ..."""
OF_A_CRITIC = ("old_values", "returns")
"""... and with a critic."""


@dataclass(frozen=True)
class RowPlan(ABC):
    """The plan that a learner's ranks would make of the whole batch: by the same functions, of the same facts."""

    stages: Sequence[Stage]
    """The first one begins."""
    seed: int

    @abstractmethod
    def facts(self, rows: Rows) -> RowFacts:
        """Return the facts that rows are cut by."""

    @abstractmethod
    def learned(self, rows: Rows, *, stage: str) -> Rows:
        """Return the batch with the rows that optimiser steps are made of."""

    @abstractmethod
    def observed(self, rows: Rows) -> NormalizerUpdate | None:
        """Return the observations that running statistics take in after an update; None if none are kept."""

    def updated(self, facts: RowFacts, rank: DataParallelRank, *, stage: str, step: int) -> BatchPlan | None:
        """Plan an iteration; None if each share has to have every row."""
        now = self.stage(stage)
        if "selected" in now.objective.needs:
            return None  # what is treated separately is chosen among all rows of a step
        return update_plan(facts, rank, stage=now, seed=self.seed, step=step)

    def columns(self, stage: str, rows: Rows) -> tuple[str, ...]:
        """List the columns that ranks learn from, and compute pending advantages of."""
        critic = OF_A_CRITIC if "returns" in self.stage(stage).objective.needs else ()
        pending = distributed.columns(rows) if isinstance(rows, PreparedRows) else ()
        return (*LEARNED, *critic, *pending)

    def stage(self, name: str) -> Stage:
        return next(one for one in self.stages if one.name == name)


def text_facts(rows: Rows, *, packed: bool) -> RowFacts:
    """Facts of responses; ``packed``: rows pay their prompt once for all that share it."""
    return RowFacts.of(rows, text_costs(TextInputs.of(unprepared(rows)[0].inputs), packed=packed))


@dataclass(frozen=True)
class TextPlan(RowPlan):
    """Rows are responses."""

    packed: bool
    """As of :func:`text_facts` (`learner.pack`; megatron always does so)."""

    def facts(self, rows: Rows) -> RowFacts:
        return text_facts(rows, packed=self.packed)

    def learned(self, rows: Rows, *, stage: str) -> Rows:
        return rows

    def observed(self, rows: Rows) -> None:
        return None


@dataclass(frozen=True)
class DecisionPlan(RowPlan):
    """Rows are parts of episodes, or the decisions of a policy without memory."""

    rule: DecisionRule

    def facts(self, rows: Rows) -> RowFacts:
        return RowFacts.of(rows, self.rule.costs(_batch(rows).decided))

    def learned(self, rows: Rows, *, stage: str) -> Rows:
        return learned_rows(_batch(rows), self.stage(stage), independent=self.rule.independent)

    def observed(self, rows: Rows) -> NormalizerUpdate | None:
        if not self.rule.observed:
            return None
        batch = _batch(rows)
        leaves = ObservationInputs.of(batch.inputs).observations
        return NormalizerUpdate(ObservationInputs({name: leaves[name] for name in self.rule.observed}), batch.mask)


def _batch(rows: Rows) -> Batch:
    """Return the batch of a simulator, whose rows are here and whose advantages the driver computes."""
    assert isinstance(rows, Batch)
    return rows
