"""Evaluations while a run trains: recorded in its directory, and compared to find the best checkpoint."""

from __future__ import annotations

import time
from typing import Any

from rlinf.base.errors import UserError
from rlinf.data.messages import Metrics
from rlinf.train.evaluation.missing_metric import missing_metric
from rlinf.train.run_state import RunState
from rlinf.train.tracking.samples import write_episodes


class TrainingEvaluation:
    """Evaluates the policy that the samplers hold; nothing if `evaluation.size` is 0."""

    def __init__(self, run: RunState) -> None:
        self.run = run
        self.samples: list[dict[str, Any]] = []
        """Of the newest evaluation, for people to read."""

    def evaluate(self) -> Metrics:
        """Compute the metrics of now, with a video if one is due."""
        run, graph, state = self.run, self.run.graph, self.run.progress
        if graph.evaluate is None:
            return {}
        began = time.perf_counter()
        films = graph.film is not None and run.due(run.config.evaluation.video_every)
        evaluation = graph.film(state.step) if films and graph.film is not None else graph.evaluate()
        state.evaluation, self.samples = evaluation.metrics, evaluation.samples
        state.evaluated = state.step
        for note in evaluation.notes:
            run.display.say(f"step {state.step}: {note}", style="yellow")
        write_episodes(run.folder.path, state.step, evaluation.episodes)
        self._note_best(evaluation.metrics)
        return {**evaluation.metrics, "time/evaluation_s": time.perf_counter() - began}

    def _note_best(self, metrics: Metrics) -> None:
        """Remembers the step with the highest `checkpoint.best_metric`; one that is never measured is a UserError."""
        config, state = self.run.config, self.run.progress
        metric, best = config.checkpoint.best_metric, state.best
        if metric is None:
            return
        missing = missing_metric(metric, metrics, config.env.success_key)
        if missing is not None and best is None:
            raise UserError(f"checkpoint.best_metric: {missing}")
        if metric in metrics and (best is None or metrics[metric] > best[0]):
            state.best = (metrics[metric], state.step)
