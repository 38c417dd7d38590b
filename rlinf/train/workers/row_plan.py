"""Which rows each rank of a learner works on: what the driver cuts a batch by, so that a rank is sent no others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rlinf.algorithms import by_row
from rlinf.batch_share import RowFacts
from rlinf.learners.minibatch import moving_rows
from rlinf.learners.partition import minibatches, shares
from rlinf.learners.stage import Stage
from rlinf.models.packing import text_costs
from rlinf.types import Batch, TextInputs

EVALUATED = ("actions", "mask")
"""The columns that ranks read of a batch that they evaluate ..."""
LEARNED = (*EVALUATED, "rollout_logprobs", "old_logprobs", "ref_logprobs", "advantages")
"""... of one that they learn from ..."""
OF_A_CRITIC = ("old_values", "returns")
"""... and with a critic."""


@dataclass(frozen=True)
class RowPlan:
    """The cuts of a learner of text, as its ranks make them: by the same functions, of the same facts."""

    stages: Sequence[Stage]
    """The first one begins."""
    seed: int
    packed: bool
    """Rows pay their prompt once for all that share it (`learner.pack`; megatron always does so)."""
    skips_unanswered: bool
    """Rows without a response are left out (fsdp)."""

    def facts(self, batch: Batch) -> RowFacts:
        return RowFacts.of(batch, text_costs(TextInputs.of(batch.inputs), packed=self.packed))

    def evaluated(self, facts: RowFacts, size: int) -> list[Tensor]:
        """The rows of each of ``size`` shares, where all are evaluated once."""
        return self._held([self._cut(torch.arange(len(facts.tokens)), facts, size)], facts)

    def updated(self, facts: RowFacts, size: int, *, stage: str, step: int) -> list[Tensor] | None:
        """The rows that each of ``size`` shares has in any optimiser step of an iteration; None: every row."""
        now = self._stage(stage)
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
        critic = OF_A_CRITIC if "returns" in self._stage(stage).objective.needs else ()
        return (*LEARNED, *critic, *(by_row.columns(batch) if batch.estimation is not None else ()))

    def _stage(self, name: str) -> Stage:
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
