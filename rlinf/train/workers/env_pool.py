"""The env workers of a simulator run as one; one that dies is started anew."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlinf.cluster import WORKER_LOST, Cluster, WorkerDied, WorkerError, WorkerGroup
from rlinf.errors import UserError
from rlinf.types import Metrics, WeightUpdate

_DIED_AGAIN = (
    "An environment that ends its process takes the env worker with it. With env.isolation: process, or "
    "env.vectorization: async, it has a process of its own, and its death costs an episode."
)


class EnvPool:
    """Fits `rollouts.vector.Workers`.

    A worker that died takes its running episodes with it. The new one is given the weights, goes on with episodes that
    were not begun before, and makes the call again: training continues, with other episodes than it would have had.
    """

    def __init__(self, group: WorkerGroup, cluster: Cluster) -> None:
        self.group, self.cluster = group, cluster
        self.size = group.size
        self.restarts = 0
        self._weights: Any = None

    def numbers(self) -> Metrics:
        """How often workers were started anew."""
        return {"failures/env_workers": float(self.restarts)}

    def spaces(self) -> tuple[Any, Any]:
        """Observation and action space of one environment."""
        return self.group.call_one(0, "spaces")

    def instructions(self, starts: int) -> list[str]:
        """What the environment says to so many starts; empty where it says nothing."""
        return self.group.call_one(0, "instructions", starts)

    def vectorization(self) -> str:
        """How the first worker steps its environments, and why."""
        return self.group.call_one(0, "vectorization")

    def require_filming(self) -> None:
        """Raises UserError where episodes can not be filmed; worker 0 is the one that films."""
        problem = self.group.call_one(0, "filming_problem")
        if problem is not None:
            raise UserError(f"evaluation.video_every: {problem}. Set evaluation.video_every: 0 to go without videos.")

    def call(self, method: str, /, *args: Any, per_rank: Sequence[Sequence[Any]] | None = None) -> list[Any]:
        if args and isinstance(args[0], WeightUpdate):
            self._weights = self.cluster.share(args[0])
            args = (self._weights,)
        rows = [args] * self.size if per_rank is None else per_rank
        handles = [self.group.submit_one(rank, method, *row) for rank, row in enumerate(rows)]
        results = []
        for rank, handle in enumerate(handles):
            try:
                results.append(handle.result())
            except WORKER_LOST:
                results.append(self._again(rank, method, rows[rank]))
        return results

    def _again(self, rank: int, method: str, row: Sequence[Any]) -> Any:
        """A call whose worker died, made to the one that takes its place. Where that one dies too it is a UserError."""
        try:
            self._revive(rank)
            return self.group.call_one(rank, method, *row)
        except WorkerError as error:
            if not isinstance(error, WorkerDied) and error.method != "restart":
                raise  # it lives, and its words say what is wrong
            raise UserError(f"{error}\n{_DIED_AGAIN}") from error

    def _revive(self, rank: int) -> None:
        self.group.restart(rank)
        self.restarts += 1
        self.group.call_one(rank, "skip_episodes", self.restarts)
        if self._weights is not None:
            self.group.call_one(rank, "load", self._weights)
