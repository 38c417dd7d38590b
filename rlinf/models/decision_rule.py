"""The rule by which rows of decisions may be divided, as a policy that reads observations states it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from rlinf.data.batch import Costs


@dataclass(frozen=True)
class DecisionRule:
    """How decisions depend on each other, and on what has been seen."""

    tokens: int = 1
    """The cost of a decision."""
    independent: bool = True
    """A decision can be evaluated without those before it; otherwise a row pays for its padding too."""
    observed: tuple[str, ...] = ()
    """The leaves of observations whose running statistics the policy keeps."""

    def costs(self, decided: Tensor) -> Costs:
        """Return the cost of each row with the true decisions [B, C]."""
        count = decided.sum(dim=1) if self.independent else torch.full((len(decided),), decided.shape[1])
        return Costs(count.clamp(min=1) * self.tokens)
