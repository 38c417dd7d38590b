"""Which conversations may be begun when, and which of them make the next batch (AReaL, arXiv:2505.24298, section 5)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rlinf.rollouts.text.open_batch import OpenBatch

Groups = list[tuple[OpenBatch, int]]
"""Groups of batches that were begun."""


@dataclass(frozen=True)
class StalenessBound:
    """The bound on the age of what is trained on, in groups.

    A group that is begun under the weights of iteration v is trained on in iteration v + ``staleness`` at the latest.
    """

    prompts: int
    """Groups of a batch."""
    group_size: int
    staleness: int
    last: int
    """The last training iteration."""
    over_sampling: float = 0.0
    """Above 0, only this share of a batch more than one is begun, and batches take what is complete first."""

    @property
    def reorders(self) -> bool:
        """Whether batches take what is complete first, instead of one batch after another as they were begun."""
        return self.over_sampling > 0

    def begun(self, version: int) -> int:
        """How many groups of the run may have been begun under the weights of iteration ``version``."""
        ahead = self.staleness * self.prompts
        if self.reorders:
            ahead = min(ahead, math.ceil(self.over_sampling * self.prompts))
        return min((version + 1) * self.prompts + ahead, (self.last + 1) * self.prompts)

    def next_batch(self, step: int, open: Sequence[OpenBatch]) -> Groups | None:
        """Choose the groups that iteration ``step`` trains on, oldest first; None if it has to wait for some of them.

        ``open``: all batches that were begun, oldest first.
        """
        if not self.reorders or open[0].round:
            chosen = [(open[0], group) for group in range(len(open[0].rows) // self.group_size)]
            return chosen if self._all_complete(chosen) else None
        waiting = [(batch, group) for batch in open for group in batch.groups(self.group_size)]
        must = self._overdue(step, waiting)
        if not self._all_complete(waiting[:must]):
            return None
        ready = [one for one in waiting[must:] if self._all_complete([one])]
        chosen = waiting[:must] + ready[: self.prompts - must]
        return chosen if len(chosen) == self.prompts else None

    def _overdue(self, step: int, waiting: Groups) -> int:
        """How many of the oldest groups must be taken now, so that none of the others becomes too old.

        Until iteration u, u - step batches follow this one: of the groups that are due by then, what doesn't fit into
        those must go now.
        """
        must = 0
        for number, (batch, _) in enumerate(waiting, start=1):
            due = batch.step + self.staleness
            must = max(must, number - (due - step) * self.prompts)
        return must

    def _all_complete(self, groups: Groups) -> bool:
        return all(batch.complete(group, self.group_size) for batch, group in groups)
