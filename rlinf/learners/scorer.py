"""A frozen model on the learner's device, which says how likely given tokens are: a teacher."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rlinf.learners.partition import micro_batches, share
from rlinf.types import Batch


class Scorer:
    """One rank of several, each with the whole model."""

    def __init__(
        self, policy: Any, *, micro_batch_tokens: int, device: torch.device | str = "cpu", rank: int = 0, size: int = 1
    ) -> None:
        """``policy``: as in a learner; it is frozen here."""
        self.device = torch.device(device)
        self.policy = policy.to(self.device).requires_grad_(False).eval()
        self.micro_batch_tokens, self.rank, self.size = micro_batch_tokens, rank, size

    def score(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """(rows [B'], log-probabilities [B', T] float32 on the CPU) of this rank's share; 0 where ``mask`` is false."""
        costs = self.policy.costs(batch.inputs, batch.mask)
        rows = share(torch.arange(batch.num_rows), costs, rank=self.rank, size=self.size)
        pieces = micro_batches(rows, costs, budget=self.micro_batch_tokens)
        found = [torch.zeros(0, batch.num_positions)]
        with torch.no_grad():
            for piece in pieces:
                part = batch.select(piece).to(self.device)
                output = self.policy.evaluate(part.inputs, part.actions, part.mask, with_entropy=False)
                found.append(output.logprobs.float().cpu())
        return torch.cat(pieces) if pieces else rows, torch.cat(found)
