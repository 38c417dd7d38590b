"""Records of finished episodes, and the metrics made of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from rlinf.data.batch import Batch
from rlinf.data.messages import Metrics
from rlinf.rollouts.vec_env.vec_env import StepResult
from rlinf.rollouts.video.film_track import FilmTrack


@dataclass(frozen=True)
class EpisodeRecord:
    """One finished episode; numbers are before any normalisation."""

    key: int
    """Sub-environment (fragments) or row (whole episodes, evaluation) that it ran in."""
    total: float
    """Undiscounted return."""
    length: int
    """Environment steps."""
    success_once: bool | None
    """The success flag was up at any step; None where the environment reported no success in the whole episode."""
    success_at_end: bool | None
    """It was up at the last step; None likewise."""
    task: str = ""
    """Of `env.tasks`; empty where there are none."""


@dataclass(frozen=True)
class EpisodeTrace:
    """The course of an episode, environment step by environment step, for people to read."""

    record: EpisodeRecord
    start_seed: int
    decisions: int
    rewards: list[float]
    actions: list[list[float]]
    """One list per dimension of the action, as the environment took them."""
    discrete: bool = False
    """Actions are choices among a few: their numbers have no order."""
    chunk: int = 1
    """Environment steps of a decision; the last one of an episode may have fewer."""
    instruction: str = ""
    """What was to be done, in words; empty where the environment gives none."""
    film: FilmTrack | None = field(default=None, compare=False)
    """None where the episode was not filmed. A camera changes no episode: it does not count in comparisons."""


@dataclass
class RolloutPart:
    """One worker's share of a rollout."""

    batch: Batch | None
    """None where this worker had nothing to do, or nothing that survived."""
    episodes: list[EpisodeRecord]
    failures: Counter[str]
    env_steps: int
    traces: list[EpisodeTrace] = field(default_factory=list)
    problem: str | None = None
    """Why there is no video, if one was requested."""
    last_failure: str = ""
    """An account of the newest failure of an environment; empty where none has failed."""
    other_starts: bool = False
    """Whether an episode of an evaluation began elsewhere than an earlier one of the same seed."""


def report_success(records: Sequence[EpisodeRecord]) -> bool:
    """Return whether their environments report success at all. An episode that does not report it has failed then."""
    return any(record.success_once is not None for record in records)


def episode_metrics(records: Sequence[EpisodeRecord]) -> Metrics:
    """Compute means over the records, and how many there were; without any, only the count.

    There is no success if none is reported."""
    metrics: Metrics = {"rollout/episodes": float(len(records))}
    if records:
        metrics["rollout/return"] = float(np.mean([r.total for r in records]))
        metrics["rollout/episode_len"] = float(np.mean([r.length for r in records]))
    if report_success(records):
        metrics["rollout/success_once"] = float(np.mean([bool(r.success_once) for r in records]))
        metrics["rollout/success_at_end"] = float(np.mean([bool(r.success_at_end) for r in records]))
    known = report_success(records)
    for task, own in by_task(records).items():
        name = "success_once" if known else "return"
        numbers = [float(bool(r.success_once)) if known else r.total for r in own]
        metrics[f"rollout/{name}/{task}"] = float(np.mean(numbers))
    return metrics


def by_task(records: Sequence[EpisodeRecord]) -> dict[str, list[EpisodeRecord]]:
    """Group episodes by their task; nothing if a run has one task only."""
    tasks: dict[str, list[EpisodeRecord]] = {}
    for record in records:
        if record.task:
            tasks.setdefault(record.task, []).append(record)
    return tasks


class EpisodeTally:
    """Running return, length and success of N sub-environments, turned into a record when an episode ends."""

    def __init__(self, num_envs: int) -> None:
        self.totals = np.zeros(num_envs)
        self.lengths = np.zeros(num_envs, dtype=np.int64)
        self.succeeded = np.zeros(num_envs, dtype=bool)
        self.has_success = np.zeros(num_envs, dtype=bool)

    def add(self, env_indices: np.ndarray, result: StepResult, acted: np.ndarray) -> None:
        """One step of distinct ``env_indices`` [n], as far as they ``acted`` [n]."""
        env_indices = env_indices[acted]
        self.totals[env_indices] += result.rewards[acted]
        self.lengths[env_indices] += 1
        self.succeeded[env_indices] |= result.success[acted]
        self.has_success[env_indices] |= result.has_success[acted]

    def finish(self, env_index: int, key: int, success_now: bool, task: str) -> EpisodeRecord:
        once, at_end = (bool(self.succeeded[env_index]), success_now) if self.has_success[env_index] else (None, None)
        record = EpisodeRecord(key, float(self.totals[env_index]), int(self.lengths[env_index]), once, at_end, task)
        self.clear(env_index)
        return record

    def clear(self, env_index: int) -> None:
        self.totals[env_index], self.lengths[env_index] = 0.0, 0
        self.succeeded[env_index] = self.has_success[env_index] = False
