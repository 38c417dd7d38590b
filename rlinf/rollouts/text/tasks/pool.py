"""Which tasks are worth drawing, by how the policy answered them last: solved ones rest, learnable ones stay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rlinf.data.messages import Metrics
from rlinf.rollouts.text.conversation import Row
from rlinf.schema.env import PoolConfig


class TaskPool:
    """The tasks that rest, and for how many visits of the task order they still do.

    A group whose share of solved responses reaches `data.pool.solved`, or does not exceed `data.pool.unsolved`, sends
    its task to rest. What is known is what was seen: nothing is sampled to find out.
    """

    def __init__(self, options: PoolConfig) -> None:
        self._options = options
        self._resting: dict[int, int] = {}
        """Task -> visits to pass over; 0 where it rests for good."""
        self._seen: dict[int, float] = {}
        """Task -> share of solved responses when it was drawn last."""

    def rests(self, task_id: int) -> bool:
        """Whether the task is passed over."""
        return task_id in self._resting

    def visit(self, task_id: int) -> bool:
        """:meth:`rests` at a visit of the task order, after which one less is left to pass over."""
        if task_id not in self._resting:
            return False
        left = self._resting[task_id]
        if left == 1:
            del self._resting[task_id]
        elif left:
            self._resting[task_id] = left - 1
        return True

    def wake(self, member: int, members: int) -> bool:
        """End the rest of all tasks of one environment, since it has no others; False if none of them rests."""
        results = [task for task in self._resting if task % members == member]
        for task in results:
            del self._resting[task]
        return bool(results)

    def note(self, rows: Sequence[Row]) -> None:
        """Record how the groups of a batch were answered. Lost rows do not count."""
        groups: dict[int, list[bool]] = {}
        for row in rows:
            if not row.lost:
                groups.setdefault(row.task_id, []).append(row.verdict == "correct")
        solved, unsolved = self._options.solved, self._options.unsolved
        for task, verdicts in groups.items():
            share = self._seen[task] = sum(verdicts) / len(verdicts)
            if (solved is not None and share >= solved) or (unsolved is not None and share <= unsolved):
                self._resting[task] = self._options.rest

    def metrics(self) -> Metrics:
        """How many tasks were seen, rest, and are between."""
        learnable = sum(0.0 < share < 1.0 for share in self._seen.values())
        return {
            "pool/seen": float(len(self._seen)),
            "pool/resting": float(len(self._resting)),
            "pool/learnable": float(learnable),
        }

    def state_dict(self) -> dict[str, Any]:
        return {"resting": dict(self._resting), "seen": dict(self._seen)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._resting, self._seen = dict(state["resting"]), dict(state["seen"])
