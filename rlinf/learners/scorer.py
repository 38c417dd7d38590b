"""Ranks that each have a whole policy, and evaluate rows of their own: of the torch learner, and of a teacher."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rlinf.data.batch import Batch, Costs
from rlinf.data.messages import PolicyOutput
from rlinf.data.shards import DataParallelRank, RankBatch
from rlinf.learners.step_plan import join_outputs, share_of_evaluation


class Replica:
    """One rank of several, with a policy on its device."""

    policy: Any
    device: torch.device
    micro_batch_tokens: int
    rank: int
    size: int

    def costs(self, batch: Batch) -> Costs:
        """Return the cost of each row, by the policy's own rule."""
        costs: Costs = self.policy.costs(batch.inputs, batch.mask)
        return costs

    @property
    def data_rank(self) -> DataParallelRank:
        """Every rank has a share of the rows for itself."""
        return DataParallelRank(self.rank, self.size, self.micro_batch_tokens)

    @torch.no_grad()
    def evaluate_by(self, policy: Any, batch: Batch | RankBatch) -> tuple[Tensor, PolicyOutput]:
        """(rows [B'], their log-probabilities and values by ``policy`` [B', T] on the CPU) of this rank's share."""
        batch = share_of_evaluation(batch, self)
        (mine,) = batch.parts
        outputs = []
        for part, _ in batch.passes(mine):
            part = part.to(self.device)
            outputs.append(policy.evaluate(part.inputs, part.actions, part.mask, with_entropy=False))
        return join_outputs(mine.micro_batches, outputs, batch.num_positions)


class Scorer(Replica):
    """A frozen model on the learner's device that computes how likely given tokens are: a teacher.

    It is whole on every rank, however the learner next to it is split.
    """

    def __init__(
        self, policy: Any, *, micro_batch_tokens: int, device: torch.device | str = "cpu", rank: int = 0, size: int = 1
    ) -> None:
        """``policy``: as in a learner; it is frozen here."""
        self.device = torch.device(device)
        self.policy = policy.to(self.device).requires_grad_(False).eval()
        self.micro_batch_tokens, self.rank, self.size = micro_batch_tokens, rank, size

    def score(self, batch: Batch | RankBatch) -> tuple[Tensor, Tensor]:
        """Score this rank's share: (rows [B'], log-probabilities [B', T] float32 on the CPU); 0 where ``mask`` is
        false."""
        rows, output = self.evaluate_by(self.policy, batch)
        return rows, output.logprobs
