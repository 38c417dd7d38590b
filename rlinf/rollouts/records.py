"""What is known of finished episodes, and the metrics made of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rlinf.types import Metrics


@dataclass(frozen=True)
class EpisodeRecord:
    """One finished episode; numbers are before any normalisation."""

    key: int
    """Lane (fragments) or row (whole episodes, evaluation) that it ran in."""
    total: float
    """Undiscounted return."""
    length: int
    """Environment steps."""
    success_once: bool
    """The success flag was up at any step."""
    success_at_end: bool
    """It was up at the last step."""


@dataclass(frozen=True)
class EpisodeTrace:
    """What happened in an episode, decision by decision, for people to look at."""

    record: EpisodeRecord
    start_seed: int
    rewards: list[float]
    actions: list[list[float]]
    """One list per dimension of the action."""


def episode_metrics(records: Sequence[EpisodeRecord], prefix: str = "rollout") -> Metrics:
    """Means over the records, and how many there were; without any, only the count."""
    metrics: Metrics = {f"{prefix}/episodes": float(len(records))}
    if records:
        metrics[f"{prefix}/return"] = float(np.mean([r.total for r in records]))
        metrics[f"{prefix}/episode_len"] = float(np.mean([r.length for r in records]))
        metrics[f"{prefix}/success_once"] = float(np.mean([r.success_once for r in records]))
        metrics[f"{prefix}/success_at_end"] = float(np.mean([r.success_at_end for r in records]))
    return metrics


class EpisodeTally:
    """Running return, length and success of N lanes, turned into a record when an episode ends."""

    def __init__(self, num_lanes: int) -> None:
        self.totals = np.zeros(num_lanes)
        self.lengths = np.zeros(num_lanes, dtype=np.int64)
        self.succeeded = np.zeros(num_lanes, dtype=bool)

    def add(self, lanes: np.ndarray, rewards: np.ndarray, success: np.ndarray) -> None:
        """One step of distinct ``lanes`` [n]."""
        self.totals[lanes] += rewards
        self.lengths[lanes] += 1
        self.succeeded[lanes] |= success

    def finish(self, lane: int, key: int, success_now: bool) -> EpisodeRecord:
        record = EpisodeRecord(
            key, float(self.totals[lane]), int(self.lengths[lane]), bool(self.succeeded[lane]), success_now
        )
        self.clear(lane)
        return record

    def clear(self, lane: int) -> None:
        self.totals[lane], self.lengths[lane], self.succeeded[lane] = 0.0, 0, False
