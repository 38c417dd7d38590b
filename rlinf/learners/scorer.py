"""A frozen model on the learner's device that computes how likely given tokens are: a teacher."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rlinf.data.batch import Batch, Costs
from rlinf.data.shards import DataParallelRank, RankBatch
from rlinf.learners.step_plan import evaluate_share


class Scorer:
    """One rank of several, each with the whole model."""

    def __init__(
        self, policy: Any, *, micro_batch_tokens: int, device: torch.device | str = "cpu", rank: int = 0, size: int = 1
    ) -> None:
        """``policy``: as in a learner; it is frozen here."""
        self.device = torch.device(device)
        self.policy = policy.to(self.device).requires_grad_(False).eval()
        self.micro_batch_tokens, self.rank, self.size = micro_batch_tokens, rank, size

    def costs(self, batch: Batch) -> Costs:
        """Return the cost of each row, by the policy's own rule."""
        costs: Costs = self.policy.costs(batch.inputs, batch.mask)
        return costs

    @property
    def data_place(self) -> DataParallelRank:
        """Every rank has its own share of the rows, however the learner next to it is split."""
        return DataParallelRank(self.rank, self.size, self.micro_batch_tokens)

    def score(self, batch: Batch | RankBatch) -> tuple[Tensor, Tensor]:
        """Score this rank's share: (rows [B'], log-probabilities [B', T] float32 on the CPU); 0 where ``mask`` is
        false."""
        rows, output = evaluate_share(self.policy, batch, self)
        return rows, output.logprobs
