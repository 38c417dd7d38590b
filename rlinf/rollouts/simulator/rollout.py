"""The simulators' rollout: splits the work over env workers and joins their rows into one batch."""

from __future__ import annotations

import itertools
import time
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from rlinf.base.errors import UserError
from rlinf.base.random_streams import numpy_generator, rollout_key, stream_seed
from rlinf.data.batch import Batch, concatenate
from rlinf.data.messages import Metrics
from rlinf.data.vec_normalize import read_statistics
from rlinf.datasets.robot_data.reading import count_episodes
from rlinf.rollouts.simulator.demonstrations import Demonstrations
from rlinf.rollouts.simulator.episodes import EpisodeTask
from rlinf.rollouts.simulator.evaluation_starts import evaluation_tasks, start_name
from rlinf.rollouts.simulator.failures import counted_failures, too_many_failures
from rlinf.rollouts.simulator.records import EpisodeRecord, EpisodeTrace, RolloutPart, episode_metrics
from rlinf.rollouts.simulator.reward_normalizer import RewardNormalizer
from rlinf.rollouts.vec_env.mixture import Mixture
from rlinf.rollouts.vec_env.vec_env import FAILURE_KINDS
from rlinf.schema.derived import RolloutSections
from rlinf.schema.run import Words

_RECENT = 100


class Workers(Protocol):
    """A group of env workers; `cluster.WorkerGroup` fits."""

    size: int

    def call(self, method: str, /, *args: Any, per_rank: Sequence[Sequence[Any]] | None = None) -> list[Any]: ...


@dataclass(frozen=True)
class VectorEvaluation:
    """Episodes in the order of their rows, the course of a few of them, and why a requested video is missing."""

    records: list[EpisodeRecord]
    starts: list[str]
    """The name of the start state of each record (:func:`start_name`)."""
    traces: list[EpisodeTrace]
    problem: str | None = None
    other_starts: bool = False
    """Whether an episode began elsewhere than in an earlier evaluation of the same seed."""


class VectorRollout:
    """An `interfaces.Rollout`. Rows come in the same order, with the same content, for any number of workers."""

    def __init__(self, workers: Workers, config: RolloutSections) -> None:
        self._workers, self._config = workers, config
        self._episodes = config.facts.collects_episodes
        self._mixture = Mixture.of(config.env)
        self._failures: Counter[str] = Counter()
        self._recent: deque[float] = deque(maxlen=_RECENT)
        self._env_steps = 0
        self._normalizer = RewardNormalizer(config.algorithm.gamma) if config.env.normalize_rewards else None
        if self._normalizer is not None and config.env.normalize_from is not None:
            returns = read_statistics(config.env.normalize_from).returns
            if returns is not None:
                self._normalizer.begin_with(returns)

    def collect(self, step: int, *, round: int = 0) -> tuple[Batch, Metrics]:
        """Collect a batch of a step. If every episode of it broke it is collected again, until too many have failed."""
        started = time.perf_counter()
        parts: list[RolloutPart] = []
        batch: Batch | None = None
        # A replay buffer takes a step without a valid timestep, too: what was there before does not go on in the next.
        while batch is None or not bool(batch.mask.any() or self._config.facts.off_policy):
            newest = self._collected(step, round)
            parts += newest
            batch = self._joined(newest)
        episodes = [record for part in parts for record in part.episodes]
        self._recent.extend(record.total for record in episodes)
        return batch, self._metrics(parts, episodes, time.perf_counter() - started)

    def _collected(self, step: int, round: int) -> list[RolloutPart]:
        """Collect the parts that every worker brings."""
        parts: list[RolloutPart]
        if self._episodes:
            shares = self._split(self._tasks(step, round))
            parts = self._workers.call("collect", per_rank=[(step, tasks, round) for tasks in shares])
        else:
            parts = self._workers.call("collect", step, (), round)
        self._env_steps += sum(part.env_steps for part in parts)
        self._note_failures(parts)
        return parts

    def _joined(self, parts: Sequence[RolloutPart]) -> Batch | None:
        """Join the rows of all workers, if there are any, with their rewards normalised if configured so."""
        batches = [part.batch for part in parts if part.batch is not None]
        if not batches:
            return None
        batch = concatenate(batches)
        if self._episodes and self._config.algorithm.group_size > 1:
            # Without groups of which failures left one member only: it has nothing to be compared with.
            _, group_of, sizes = batch.group_ids.unique(return_inverse=True, return_counts=True)
            keep = (sizes[group_of] > 1).nonzero()[:, 0]
            batch = batch if len(keep) == batch.num_rows else batch.select(keep)
        return batch if self._normalizer is None else self._normalizer(batch)

    def evaluate(
        self, episodes: int, *, greedy: bool = True, video: Path | None = None, words: Words | None = None
    ) -> VectorEvaluation:
        """``episodes`` episodes whose starts depend on the evaluation seed and their number only
        (:func:`evaluation_tasks`).

        With ``video`` the first few are filmed, all by one worker, into that file. ``words``: the same starts with
        other instructions (`evaluation.words`).
        """
        env = self._config.facts.evaluation_env
        tasks = evaluation_tasks(self._config.evaluation.seed, self._mixture, episodes, len(env.reset_state_ids))
        filmed = tasks[: self._config.evaluation.video_episodes] if video is not None else []
        others = np.array_split(np.arange(len(filmed), episodes), self._workers.size)
        calls: list[tuple[Any, ...]] = [([tasks[row] for row in rows], greedy, words) for rows in others]
        calls[0] = (*calls[0], filmed, video)
        parts: list[RolloutPart] = self._workers.call("evaluate", per_rank=calls)
        self._note_failures(parts)
        records = [record for part in parts for record in part.episodes]
        return VectorEvaluation(
            records,
            [start_name(env, self._mixture, tasks[record.key].start_seed) for record in records],
            [trace for part in parts for trace in part.traces],
            parts[0].problem,
            any(part.other_starts for part in parts),
        )

    def demonstrations(self, episodes: int, perturbation: float, round: int = 0) -> list[Demonstrations]:
        """Demonstrations from ``episodes`` start states, or all recorded ones, worker by worker.

        Rounds after the first are played together with the policy (`sft.dagger_share`)."""
        seed, dataset = self._config.run.seed, self._config.sft.dataset
        if dataset is not None:
            episodes = count_episodes(dataset)
        key = (round,) if round else ()
        starts = [stream_seed(seed, "demonstration", *key, row) for row in range(episodes)]
        starts = self._mixture.drawn(starts, numpy_generator(seed, "demonstration task", *key))
        tasks = [EpisodeTask(row, row, start) for row, start in enumerate(starts)]
        shares = [[tasks[row] for row in rows] for rows in np.array_split(np.arange(episodes), self._workers.size)]
        return self._workers.call("demonstrate", per_rank=[(share, perturbation, round) for share in shares])

    @property
    def failures(self) -> int:
        """Failures of environments so far: while training and while evaluating."""
        return self._failures.total()

    def _tasks(self, step: int, round: int) -> list[EpisodeTask]:
        """List groups one after the other; the members of a group start from the same seed."""
        size, seed, key = self._config.algorithm.group_size, self._config.run.seed, rollout_key(step, round)
        starts = [stream_seed(seed, "start", *key, group) for group in range(self._config.rollout.batch_size)]
        starts = self._mixture.drawn(starts, numpy_generator(seed, "start task", *key))
        return [
            EpisodeTask(group * size + member, group, start)
            for group, start in enumerate(starts)
            for member in range(size)
        ]

    def _split(self, tasks: list[EpisodeTask]) -> list[list[EpisodeTask]]:
        """Whole groups for every worker, in order."""
        groups = np.array_split(np.arange(self._config.rollout.batch_size), self._workers.size)
        size = self._config.algorithm.group_size
        return [tasks[int(g[0]) * size : (int(g[-1]) + 1) * size] if len(g) else [] for g in groups]

    def _note_failures(self, parts: Sequence[RolloutPart]) -> None:
        """Count failures; more than are allowed end the run, with an account of one of the newest."""
        for part in parts:
            self._failures.update(part.failures)
        env = self._config.env
        if self._failures.total() > env.max_failures:
            newest = next((part.last_failure for part in parts if part.failures and part.last_failure), "")
            raise too_many_failures(env.id, counted_failures(self._failures), env.max_failures, newest)

    def _metrics(self, parts: list[RolloutPart], episodes: list[EpisodeRecord], seconds: float) -> Metrics:
        metrics = episode_metrics(episodes)
        if len(self._recent) == _RECENT:
            metrics[f"rollout/return_last_{_RECENT}"] = float(np.mean(self._recent))
        arrived = sum(part.env_steps for part in parts)
        metrics |= {"rollout/env_steps": float(arrived), "rollout/env_steps_total": float(self._env_steps)}
        metrics |= {"time/rollout_s": seconds, "env/steps_per_s": arrived / max(seconds, 1e-9)}
        return metrics | {f"env/{kind}": float(self._failures[kind]) for kind in FAILURE_KINDS}

    def state_dict(self) -> dict[str, Any]:
        """Enough for the next rollout to be the one that would have followed, with the same number of workers."""
        return {
            "workers": self._workers.call("state_dict"),
            "failures": dict(self._failures),
            "recent": list(self._recent),
            "env_steps": self._env_steps,
            "normalizer": None if self._normalizer is None else self._normalizer.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if len(state["workers"]) != self._workers.size:
            raise UserError(
                f"the checkpoint holds the environments of {len(state['workers'])} env workers; continue it with "
                f"env.num_workers={len(state['workers'])}"
            )
        self._workers.call("load_state_dict", per_rank=[(part,) for part in state["workers"]])
        self._failures = Counter(state["failures"])
        self._recent.extend(state["recent"])
        self._env_steps = state["env_steps"]
        if self._normalizer is not None:
            self._normalizer.load_state_dict(state["normalizer"])


def env_ranges(num_envs: int, workers: int) -> list[range]:
    """Split the sub-environments over workers: consecutive, sizes differing by one at most."""
    if workers > num_envs:
        raise ValueError(f"env.num_workers = {workers} is more than env.num_envs = {num_envs}")
    edges = [round(rank * num_envs / workers) for rank in range(workers + 1)]
    return [range(first, last) for first, last in itertools.pairwise(edges)]
