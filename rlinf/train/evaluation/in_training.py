"""Evaluations while a run trains: recorded in its directory, and compared to find the best checkpoint."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from rlinf.base import timeline
from rlinf.base.errors import UserError
from rlinf.config import Config
from rlinf.config.record import written
from rlinf.data.messages import Metrics
from rlinf.train.evaluation.missing_metric import missing_metric
from rlinf.train.evaluation.text import Evaluation
from rlinf.train.run_state import RunState
from rlinf.train.tracking.samples import write_episodes


@dataclass(frozen=True)
class Measured:
    """An evaluation of the weights after ``step`` iterations, and when it ran, by the performance counter."""

    step: int
    evaluation: Evaluation
    began: float
    ended: float


_LATER = ("lr", "critic_lr", "schedule", "warmup_steps", "min_lr_ratio", "eps")
"""Keys of `learner.optimizer` that begin to matter with the first step of reinforcement learning."""


class FirstEvaluations:
    """Evaluations before the first step, for runs of one process that differ in their learning rates alone."""

    def __init__(self) -> None:
        self._known: dict[str, Evaluation] = {}

    def evaluate(self, config: Config, evaluate: Callable[[], Evaluation]) -> Evaluation:
        """Return the evaluation that a run with the same initial policy made before, or that of ``evaluate``."""
        tree = written(config)
        for name in _LATER:
            tree.get("learner", {}).get("optimizer", {}).pop(name, None)
        for name in ("name", "dir"):
            tree["run"].pop(name, None)
        key = json.dumps(tree, sort_keys=True, default=str)
        if key not in self._known:
            self._known[key] = replace(evaluate(), responses=())  # which would keep all rows
        return self._known[key]


class TrainingEvaluation:
    """Evaluates the policy that the samplers hold; nothing if `evaluation.size` is 0."""

    def __init__(self, run: RunState, first: FirstEvaluations | None = None) -> None:
        """``first``: where the evaluation before the first step is taken from, or left for others."""
        self.run, self.first = run, first
        self.samples: list[dict[str, Any]] = []
        """Of the newest evaluation, for people to read."""

    def measure(self, step: int) -> Measured:
        """Evaluate the weights after ``step`` iterations, which the samplers hold, and record nothing yet."""
        run, graph, began = self.run, self.run.graph, time.perf_counter()
        assert graph.evaluate is not None
        films = graph.film is not None and run.due(run.config.evaluation.video_every, step=step)
        with timeline.span("evaluate", details={"step": step}):
            if films and graph.film is not None:
                evaluation = graph.film(step)
            elif step == 0 and self.first is not None:
                evaluation = self.first.evaluate(run.config, graph.evaluate)
            else:
                evaluation = graph.evaluate()
        return Measured(step, evaluation, began, time.perf_counter())

    def record(self, measured: Measured) -> Metrics:
        """Write an evaluation into the run's directory and progress; return its metrics."""
        run, state, evaluation = self.run, self.run.progress, measured.evaluation
        state.evaluation, self.samples = evaluation.metrics, evaluation.samples
        state.evaluated = measured.step
        for note in evaluation.notes:
            run.display.print_line(f"step {measured.step}: {note}", style="yellow")
        write_episodes(run.folder.path, measured.step, evaluation.episodes)
        self._note_best(evaluation.metrics, measured.step)
        return {**evaluation.metrics, "time/evaluation_s": measured.ended - measured.began}

    def _note_best(self, metrics: Metrics, step: int) -> None:
        """Remembers the step with the highest `checkpoint.best_metric`; one that is never measured is a UserError."""
        config, state = self.run.config, self.run.progress
        metric, best = config.checkpoint.best_metric, state.best
        if metric is None:
            return
        missing = missing_metric(metric, metrics, config.env.success_key)
        if missing is not None and best is None:
            raise UserError(f"checkpoint.best_metric: {missing}")
        if metric in metrics and (best is None or metrics[metric] > best[0]):
            state.best = (metrics[metric], step)
