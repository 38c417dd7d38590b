"""The env workers of a simulator run as one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlinf.base.errors import UserError
from rlinf.cluster import Handle
from rlinf.cluster.pool import PolicyPool
from rlinf.data.messages import Metrics
from rlinf.rollouts.isolation.start_states import SAME_STARTS, SAME_STARTS_ADVICE
from rlinf.rollouts.vec_env.offscreen import FilmingTrial
from rlinf.train.workers.kept_values import with_remote_observations


class EnvPool(PolicyPool):
    """Fits `rollouts.simulator.rollout.Workers`.

    A worker that is lost takes its running episodes with it. The new one is given the weights, goes on with episodes
    that were not begun before, and makes the call again: training continues, with other episodes than it would have
    had.
    """

    advice = (
        "An environment that ends its process takes the env worker with it. With env.isolation: process, or "
        "env.vectorization: async, it has a process of its own, and its death costs an episode."
    )

    def call(self, method: str, /, *args: Any, per_rank: Sequence[Sequence[Any]] | None = None) -> list[Any]:
        if method != "collect":
            return super().call(method, *args, per_rank=per_rank)
        self._leaves: dict[int, Handle] = {}
        parts = super().call("collect_remote", *args, per_rank=per_rank)
        return [with_remote_observations(part, self.group, rank, self._leaves[rank]) for rank, part in enumerate(parts)]

    def _submit(self, rank: int, method: str, /, *args: Any) -> Handle:
        if method != "collect_remote":
            return super()._submit(rank, method, *args)
        part, self._leaves[rank] = self.group.submit_remote(rank, method, *args)
        return part

    @property
    def acting(self) -> PolicyPool:
        """The workers that the policy acts in, to which weights are sent: these, or others instead."""
        return self

    def numbers(self) -> Metrics:
        """How often workers were restarted."""
        return {"failures/env_workers": float(self.restarts)}

    def spaces(self) -> tuple[Any, Any]:
        """Observation and action space of one environment."""
        return self.call_one(0, "spaces")

    def require_start_states(self) -> None:
        """Raise UserError if the environment does not read the numbers of its start states, of which there are some."""
        if self.call_one(0, "ignores_state_ids"):
            raise UserError(f"env.reset_state_ids: {SAME_STARTS} {SAME_STARTS_ADVICE}")

    def require_filming(self) -> str:
        """Return a remark on the pictures, or "".

        Raises UserError if episodes cannot be filmed; worker 0 is the one that films."""
        trial: FilmingTrial = self.call_one(0, "try_filming")
        if trial.problem is not None:
            advice = "Set evaluation.video_every: 0 to go without videos."
            raise UserError(f"evaluation.video_every: {trial.problem}. {advice}")
        return trial.remark or ""

    def recover(self, rank: int) -> None:
        self.group.call_one(rank, "skip_episodes", self.restarts)
        super().recover(rank)
