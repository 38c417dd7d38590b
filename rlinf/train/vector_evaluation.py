"""Evaluation of simulator policies on start states of their own, with intervals."""

from __future__ import annotations

from collections.abc import Sequence

from rlinf.rollouts.records import EpisodeRecord
from rlinf.rollouts.vector import VectorRollout
from rlinf.train.evaluation import Evaluation
from rlinf.train.statistics import mean_interval, wilson, with_interval
from rlinf.types import Metrics


class VectorEvaluator:
    """The same episodes each time: starts depend on `evaluation.seed` alone."""

    def __init__(self, rollout: VectorRollout, *, size: int, greedy: bool) -> None:
        self.rollout, self.size, self.greedy = rollout, size, greedy

    def evaluate(self) -> Evaluation:
        failed_before = self.rollout.failures
        metrics = record_metrics(self.rollout.evaluate(self.size, greedy=self.greedy))
        # Episodes whose environment broke every time are missing from eval/return/n.
        return Evaluation(metrics | {"eval/failures": float(self.rollout.failures - failed_before)}, [])


def record_metrics(records: Sequence[EpisodeRecord]) -> Metrics:
    """Means with 95% intervals; rates of success by Wilson's."""
    count = len(records)
    if not count:
        return {}
    totals = [record.total for record in records]
    metrics = with_interval("eval/return", sum(totals) / count, mean_interval(totals), count)
    for name in ("success_once", "success_at_end"):
        hits = sum(bool(getattr(record, name)) for record in records)
        metrics |= with_interval(f"eval/{name}", hits / count, wilson(hits, count), count)
    return metrics | {"eval/episode_len": sum(record.length for record in records) / count}
