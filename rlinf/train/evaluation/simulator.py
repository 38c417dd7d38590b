"""Evaluation of simulator policies on start states of their own, with intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rlinf.data.messages import Metrics
from rlinf.metrics.evaluated import WITH_WORDS
from rlinf.rollouts.simulator.records import EpisodeRecord, EpisodeTrace, by_task, report_success
from rlinf.rollouts.simulator.rollout import VectorRollout
from rlinf.schema import EvaluationConfig
from rlinf.train.evaluation.intervals import mean_interval, wilson, with_interval
from rlinf.train.evaluation.start_outcomes import start_outcomes
from rlinf.train.evaluation.text import Evaluation

_STEPS, _DIMENSIONS = 1_024, 16
"""Of an episode's course: what is kept for people to read."""
_OTHER_STARTS = (
    "evaluations begin with other observations each time, although the seeds are equal: compare them only over many "
    "episodes. An environment repeats if reset calls super().reset(seed=seed) and all draws are from self.np_random"
)


class VectorEvaluator:
    """The same episodes each time: starts depend on `evaluation.seed` alone."""

    def __init__(self, rollout: VectorRollout, options: EvaluationConfig, folder: Path) -> None:
        self.rollout, self.options, self.folder = rollout, options, folder
        self._reported = False

    def evaluate(self, video: Path | None = None) -> Evaluation:
        """Play all episodes; film the first few into ``video``."""
        failed_before = self.rollout.failures
        done = self.rollout.evaluate(self.options.size, greedy=self.options.temperature == 0.0, video=video)
        metrics = record_metrics(done.records)
        for words in self.options.words:
            answered = self.rollout.evaluate(self.options.size, greedy=self.options.temperature == 0.0, words=words)
            metrics |= _success_metrics(WITH_WORDS[words], answered.records)
        notes = [f"no video: {done.problem}"] if done.problem is not None else []
        name = video.name if video is not None and not notes else None
        if done.other_starts and not self._reported:
            self._reported = True
            notes.append(_OTHER_STARTS)
        # Episodes whose environment broke every time are missing from eval/return/n.
        metrics |= {"eval/failures": float(self.rollout.failures - failed_before)}
        episodes = [_episode(trace, name) for trace in done.traces]
        return Evaluation(metrics, episodes=episodes, notes=notes, outcomes=start_outcomes(done.starts, done.records))

    def film(self, step: int) -> Evaluation:
        """:meth:`evaluate`, with a video in the run directory."""
        # Workers may run in another folder than the driver.
        return self.evaluate((self.folder / "videos" / f"step_{step:06d}.mp4").resolve())


def _episode(trace: EpisodeTrace, video: str | None) -> dict[str, Any]:
    """Return a line of `episodes/step_000010.jsonl`."""
    facts: dict[str, Any] = {
        "start_seed": trace.start_seed,
        "decisions": trace.decisions,
        "chunk": trace.chunk,
        "discrete": trace.discrete,
        "dimensions": len(trace.actions),
        "instruction": trace.instruction,
        "video": video,
        "film": None if trace.film is None or video is None else asdict(trace.film),
    }
    return {**asdict(trace.record), **facts, "trace": trace_columns(trace.rewards, trace.actions)}


def trace_columns(rewards: Sequence[float], actions: Sequence[Sequence[float]]) -> dict[str, list[float]]:
    """Return rewards [T] and actions [D][T] of an episode's steps as named columns, cut to what a page can show."""
    columns = {"reward": rewards, **{f"action {index}": column for index, column in enumerate(actions[:_DIMENSIONS])}}
    return {name: [round(value, 5) for value in column[:_STEPS]] for name, column in columns.items()}


def record_metrics(records: Sequence[EpisodeRecord]) -> Metrics:
    """Compute means with 95% intervals; rates of success by Wilson's, if the environment reports success."""
    count = len(records)
    if not count:
        return {}
    totals = [record.total for record in records]
    metrics = with_interval("eval/return", sum(totals) / count, mean_interval(totals), count)
    if report_success(records):
        metrics |= _success_metrics("eval/success_once", records)
        metrics |= _success_metrics("eval/success_at_end", records, at_end=True)
    for task, own in by_task(records).items():
        if report_success(records):
            metrics |= _success_metrics(f"eval/success_once/{task}", own)
        else:
            numbers = [record.total for record in own]
            metrics |= with_interval(f"eval/return/{task}", sum(numbers) / len(own), mean_interval(numbers), len(own))
    return metrics | {"eval/episode_len": sum(record.length for record in records) / count}


def _success_metrics(name: str, records: Sequence[EpisodeRecord], *, at_end: bool = False) -> Metrics:
    """Compute the share of episodes with success, ever or ``at_end``, with its interval; nothing of no episodes."""
    count = len(records)
    hits = sum(bool(record.success_at_end if at_end else record.success_once) for record in records)
    return with_interval(name, hits / count, wilson(hits, count), count) if count else {}
