"""Evaluation of text policies on a held-out side of the environment."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from rlinf.rollouts.text.rollout import TextRollout
from rlinf.rollouts.text.rows import Row
from rlinf.train.evaluation.intervals import pass_at_k, share_interval, with_interval
from rlinf.types import Metrics


@dataclass(frozen=True)
class Evaluation:
    """Metrics under `eval/`, and a few graded samples (text) or episodes (simulators) to look at."""

    metrics: Metrics
    samples: list[dict[str, Any]] = field(default_factory=list)
    episodes: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What a person should hear of."""


class TextEvaluator:
    """The same tasks each time: the first ``size`` of side "eval" (fewer where it has fewer)."""

    def __init__(
        self, rollout: TextRollout, *, size: int, num_tasks: int, samples: int, temperature: float, seed: int
    ) -> None:
        self.rollout, self.samples, self.seed = rollout, samples, seed
        self.task_ids = list(range(min(size, num_tasks)))
        params = rollout.params
        self.params = params.greedy() if temperature == 0.0 else replace(params, temperature=temperature)

    def evaluate(self) -> Evaluation:
        done = self.rollout.converse(
            "eval", self.task_ids, samples=self.samples, params=self.params, key=(self.seed, 0)
        )
        rows = done.rows
        by_task = [rows[i : i + self.samples] for i in range(0, len(rows), self.samples)]
        metrics = {**_accuracy(by_task), **_shape(rows)}
        return Evaluation(metrics, [sample(row) for row in rows[: 3 * self.samples : self.samples]])


def sample(row: Row) -> dict[str, Any]:
    """A graded conversation for people to read."""
    return {
        "prompt": row.prompt_text,
        "response": "\n".join(row.answers),
        "turns": [asdict(turn) for turn in row.turns],
        "answer": row.answer,
        "verdict": row.verdict,
        "reward": row.total_reward,
        "tokens": len(row.tokens),
    }


def _accuracy(by_task: Sequence[Sequence[Row]]) -> Metrics:
    correct = [sum(row.verdict == "correct" for row in rows) for rows in by_task]
    samples, count = len(by_task[0]), len(by_task)
    shares = [c / samples for c in correct]
    mean = sum(shares) / count
    metrics = with_interval("eval/accuracy", mean, share_interval(shares, samples), count)
    for k in (2**i for i in range(1, int(math.log2(samples)) + 1)):
        passed = [pass_at_k(samples, c, k) for c in correct]
        metrics |= with_interval(f"eval/pass@{k}", sum(passed) / count, share_interval(passed, samples), count)
    return metrics


def _shape(rows: Sequence[Row]) -> Metrics:
    count = len(rows)
    return {
        "eval/reward": sum(row.total_reward for row in rows) / count,
        "eval/response_length": sum(len(row.tokens) for row in rows) / count,
        "eval/cut_by_length": sum(row.cut_by_length for row in rows) / count,
        "eval/unparsable": sum(row.verdict == "unparsable" for row in rows) / count,
    }
