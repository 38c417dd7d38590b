"""The training loop, for language models and simulators alike."""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable, Sequence

from rlinf.base import timeline
from rlinf.base.json_files import read_json_lines
from rlinf.base.signals import as_stopped, defer_signals
from rlinf.config import Config
from rlinf.data.advantage_spec import Rows
from rlinf.data.batch import Batch
from rlinf.data.messages import Metrics
from rlinf.data.remote_rows import RemoteRows
from rlinf.train.callbacks import Callback, RunStart, Step
from rlinf.train.dynamic_sampling import collect_nonconstant_groups
from rlinf.train.evaluation.in_training import FirstEvaluations, Measured, TrainingEvaluation
from rlinf.train.gap_alarm import GapAlarm
from rlinf.train.graph import Graph
from rlinf.train.init_from import Source
from rlinf.train.prefetch import BatchPrefetcher, BatchSource, ContinuousBatches
from rlinf.train.progress import Progress
from rlinf.train.quarantine import quarantine, require_finite
from rlinf.train.run_dir import RunDirectory
from rlinf.train.run_state import RunState
from rlinf.train.saved_batches import BatchRecorder
from rlinf.train.tracking.metric_log import MetricLog
from rlinf.train.tracking.open_telemetry import TraceExport
from rlinf.train.tracking.progress import ProgressDisplay
from rlinf.train.tracking.samples import write_samples
from rlinf.train.tracking.step_timeline import RecordSpans, StepTimeline
from rlinf.train.warm_start import warm_start

_log = logging.getLogger(__name__)


class Trainer:
    """One run over a graph. :meth:`train` is the loop; the rest is what its lines mean."""

    def __init__(
        self,
        config: Config,
        graph: Graph,
        folder: RunDirectory,
        display: ProgressDisplay,
        after_step: Callable[[int], None] | None = None,
        callbacks: Sequence[Callback] = (),
        source: Source | None = None,
        *,
        batches: BatchSource | None = None,
        recorder: BatchRecorder | None = None,
        spans: RecordSpans | None = None,
        first_evaluations: FirstEvaluations | None = None,
    ) -> None:
        """``source``: what a run without checkpoints begins with, instead of an untrained policy. ``batches``: saved
        ones, instead of those that the graph collects. ``recorder`` keeps the first batches. ``spans`` begins and ends
        the recording of what runs in all processes (`logging.trace_every`). ``first_evaluations``: shared with the
        other runs of this process."""
        endpoint, every = config.logging.otlp_endpoint, config.logging.trace_every
        self.export = TraceExport.to(endpoint, run=config.run.name, warn=display.warn) if endpoint and every else None
        send = None if self.export is None else self.export.send
        self.timeline = StepTimeline(folder.path, spans, every=every, send=send)
        self.recorder = recorder
        self.config, self.graph, self.display, self.after_step = config, graph, display, after_step
        self.callbacks = callbacks
        self.stopped: str | None = None
        self.save_requested = False
        self.batches = batches or self._batch_source()
        self.run = RunState(config, graph, self.batches, folder, display, source)
        self.evaluation = TrainingEvaluation(self.run, first_evaluations)
        self.alarm = GapAlarm(graph.gap_limit, config.rollout.gap_steps, display.warn)

    def _batch_source(self) -> BatchSource:
        config, in_parallel = self.config, self.config.cluster.backend != "local"
        if self.graph.continuous is not None:
            return ContinuousBatches(self.graph.continuous, concurrent=in_parallel)
        if config.rollout.staleness:
            last = config.run.max_steps - 1
            return BatchPrefetcher(self.collect, staleness=config.rollout.staleness, last=last, concurrent=in_parallel)
        return BatchSource()

    def train(self) -> Progress:
        """From wherever the run stands to its last iteration; a stop signal leaves a checkpoint.

        :raises Stopped: with the step that the same command continues from.
        """
        self.run.resume()
        for name, note in self.graph.notes.items():
            if note:
                self.display.print_line(f"{name}: {note}")
        try:
            # Cut after the last step that is not written again.
            with MetricLog(
                self.run.folder.path, self.config, from_step=self.run.logged_until, warn=self.display.warn
            ) as log:
                if self.callbacks:
                    folder = self.run.folder.path
                    start = RunStart(self.config, folder, read_json_lines(folder / "metrics.jsonl", number="step").rows)
                    for callback in self.callbacks:
                        callback.on_start(start)
                if self.run.progress.stage == "sft":
                    warm_start(self.run, log)
                self.iterate(log)
        except KeyboardInterrupt as interrupt:
            stop = as_stopped(interrupt)
            self.run.save_stopped(stop)
            raise stop from None
        except Exception as error:
            error.add_note(f"It happened in {self.run.at_work}. Checkpoints are kept: {self.run.folder.outlook}.")
            raise
        finally:
            if self.export is not None:
                self.export.close()
        return self.run.progress

    def iterate(self, log: MetricLog) -> None:
        """Run the iterations of reinforcement learning. A stop signal waits until the run's state is between two."""
        config, run, state = self.config, self.run, self.run.progress
        self.display.phase("train", total=config.run.max_steps, done=state.step)
        run.mark()
        self.graph.send_weights(self.run.progress.step)
        if (reason := self.graph.unproved()) is not None:
            self.display.warn(
                f"It cannot be shown by value that samplers hold the weights that they are sent: {reason}."
            )
        if state.step == 0 and not state.initial:
            initial = self.evaluate() if config.evaluation.at_start else {}
            with defer_signals():
                metrics = dict(initial)
                for model in self.graph.reward_models:
                    metrics |= model.begin(self.graph.rollout, self.graph.learner)
                log.write(0, metrics)
                state.initial = initial
                run.mark()
        if self.recorder is not None:
            self.recorder.begin(run, config)
        while state.step < config.run.max_steps or state.unfinished is not None:
            if state.unfinished is None:
                self.advance()
            metrics = dict(state.unfinished or {})
            if self.can_evaluate_later():
                self.evaluate_later(metrics, log)
                continue
            if run.due(config.evaluation.every):
                metrics |= self.evaluate()
            requests = self.call_back(state.step, metrics)
            if self.stopped is not None and not run.due(config.evaluation.every):
                metrics |= self.evaluate()
            with defer_signals():
                state.unfinished = None
                run.mark()
                if self.stopped is None and state.step < config.run.max_steps:
                    self.batches.go_on(state.step)
                log.write(state.step, metrics | requests.logged)
                self.display.step(state.step, metrics)
                self.alarm.add(state.step, metrics)
                self.save_if_due()
            if self.stopped is not None:
                self.display.print_line(f"stopped after step {state.step}: {self.stopped}")
                return
            if self.after_step is not None and state.step < config.run.max_steps:
                self.after_step(state.step)
        if state.evaluated != state.step:
            # Continued with a run.max_steps at or below its checkpoint, whose step was none of evaluation.every.
            self.evaluate()

    def can_evaluate_later(self) -> bool:
        """Whether an evaluation is due that may run while the learner trains on (`evaluation.background`)."""
        config, run = self.config, self.run
        enabled = config.evaluation.background and self.graph.evaluate is not None and self.stopped is None
        return enabled and run.due(config.evaluation.every) and run.progress.step < config.run.max_steps

    def evaluate_later(self, metrics: Metrics, log: MetricLog) -> None:
        """Make the next iteration, in which samplers are evaluated before they collect further batches.

        A checkpoint of before has ``metrics`` as those of an unfinished step: a run that goes on from it evaluates
        the same weights again. The line of the step is written when its evaluation is over.
        """
        step = self.run.progress.step
        with defer_signals():
            self.alarm.add(step, metrics)
            self.save_if_due()

        def finish(measured: Measured, hidden_s: float) -> None:
            result = metrics | self.evaluation.record(measured) | {"time/evaluation_hidden_s": hidden_s}
            requests = self.call_back(step, result)
            log.write(step, result | requests.logged)
            self.display.step(step, result)

        self.advance(finish)
        if self.after_step is not None:
            self.after_step(step)

    def save_if_due(self) -> None:
        """Save what was marked last, if a checkpoint is due or requested."""
        config, state = self.config, self.run.progress
        # Under alarm the last checkpoint stays the last good one, until it is clear what this state is.
        going_on = state.step < config.run.max_steps and self.stopped is None
        due = self.run.due(config.checkpoint.every) or self.save_requested or self.stopped is not None
        if due and not (going_on and self.alarm.holds_checkpoints):
            self.run.save()
        self.save_requested = False

    def call_back(self, number: int, metrics: Metrics) -> Step:
        """Call the callbacks after iteration ``number`` and do what they request; a new learning rate is set at
        once."""
        state = self.run.progress
        step = Step(number, self.config, self.run.folder.path, metrics, lr_scale=state.lr_scale)
        for callback in self.callbacks:
            callback.on_step(step)
        if step.lr_scale != state.lr_scale:
            state.lr_scale = step.lr_scale
            self.graph.learner.scale_lr(step.lr_scale)
        self.stopped = step.stop_reason or self.stopped
        self.save_requested = self.save_requested or step.save_requested
        return step

    def advance(self, evaluated: Callable[[Measured, float], None] | None = None) -> None:
        """One training iteration, up to new weights in the samplers. Until its update begins it can be interrupted.

        With ``evaluated``, samplers are evaluated in parallel with the update, with the weights of before. It is
        called with the result, and with the seconds of it in which the learner did not wait.
        """
        graph, state, began = self.graph, self.run.progress, time.perf_counter()
        self.timeline.begin(state.step)
        rows, metrics = self.batches.ready(state.step) or self.collect(state.step)
        if self.recorder is not None:
            self.recorder.add(state.step, rows, metrics)
        measured: list[Measured] = []
        first = None if evaluated is None else functools.partial(self.measure_into, measured, state.step)
        if state.step + 1 < self.config.run.max_steps:
            self.batches.begin(state.step + 1, first=first)
        elif first is not None:
            self.batches.start(first)
        parallel_from = time.perf_counter()
        with graph.learning():
            batch, prepared = self.prepare(rows)
            with defer_signals():
                metrics |= prepared | self.update(batch, state.step)
                parallel_to = time.perf_counter()
                metrics |= self.batches.settle()
                if evaluated is not None:
                    (one,) = measured
                    evaluated(one, max(0.0, min(one.ended, parallel_to) - max(one.began, parallel_from)))
                state.step += 1
                if self.recorder is not None:
                    self.recorder.updated(graph, state.step)
                metrics |= graph.hand_over(state.step)
                for model in graph.reward_models:
                    metrics |= model.refresh(state.step, graph.rollout)
                metrics |= rates(metrics, time.perf_counter() - began)
                metrics |= {name: float(count) for name, count in graph.restarts().items()}
                self.timeline.end(state.step)
                self.keep_samples(batch)
                state.unfinished = metrics
                self.run.mark()

    def collect(self, step: int) -> tuple[Batch | RemoteRows, Metrics]:
        """Collect the batch of an iteration; with dynamic sampling, from as many rollouts as it takes."""
        _log.debug("step %d: collect", step)
        options, rollout = self.config.algorithm, self.graph.rollout
        with self.graph.generating(), timeline.span("collect", details={"step": step + 1}):
            if not options.dynamic_sampling:
                return rollout.collect(step)
            return collect_nonconstant_groups(
                lambda number: rollout.collect(step, round=number),
                groups=self.config.rollout.batch_size,
                max_rounds=options.max_resample,
            )

    def prepare(self, rows: Batch | RemoteRows) -> tuple[Rows, Metrics]:
        """Compute rewards, and what else an on-policy learner trains on; a batch with NaN ends the run."""
        began, step = time.perf_counter(), self.run.progress.step
        require_finite(rows, self.run.folder.path, step)
        judged: Metrics = {}
        for model in self.graph.reward_models:
            rows, judged = model.score(rows.fetch(), step)
        with timeline.span("advantages"):
            batch, prepared = self.graph.preparation.prepare(rows, step)
        return batch, {**prepared, **judged, "time/prepare_s": time.perf_counter() - began}

    def update(self, batch: Rows, step: int) -> Metrics:
        """Run the learner's optimiser steps; a batch that fails is saved for inspection."""
        _log.debug("step %d: update", step)
        began = time.perf_counter()
        try:
            with timeline.span("update"):
                numbers = self.graph.learner.update(batch, step=step)
        except Exception:
            quarantine(batch, self.run.folder.path, step)
            raise
        every = self.config.algorithm.ref_update_every
        if every and (step + 1) % every == 0:
            self.graph.learner.refresh_reference()
        if self.config.teacher.past_policy == "average":
            self.graph.learner.refresh_reference(keep=self.config.teacher.average_decay)
        metrics = {f"train/{name}": value for name, value in numbers.items()}
        return {**metrics, "time/update_s": time.perf_counter() - began}

    def evaluate(self) -> Metrics:
        """Run the evaluation of now, with the weights that the samplers hold."""
        _log.info("step %d: evaluate", self.run.progress.step)
        if self.graph.evaluate is None:
            return {}
        return self.evaluation.record(self.evaluation.measure(self.run.progress.step))

    def measure_into(self, measured: list[Measured], step: int) -> None:
        """Evaluate the weights after ``step`` iterations while the learner trains, and add the result to a list."""
        _log.info("step %d: evaluate in the background", step)
        measured.append(self.evaluation.measure(step))

    def keep_samples(self, batch: Rows) -> None:
        """Write graded samples of the iteration that is over, if `logging.samples_every` requires it."""
        logging, step = self.config.logging, self.run.progress.step
        if logging.samples_every and (step - 1) % logging.samples_every == 0:
            write_samples(
                self.run.folder.path,
                step,
                batch,
                groups=logging.sample_groups,
                evaluate=self.graph.learner.evaluate,
                rendered=self.graph.rendered,
            )


def rates(metrics: Metrics, seconds: float) -> Metrics:
    """Seconds of an iteration, and what it collected in one of them."""
    rates = {"time/step_s": seconds}
    for counted, rate in (("rollout/tokens", "speed/tokens_per_s"), ("rollout/env_steps", "speed/steps_per_s")):
        if counted in metrics:
            rates[rate] = metrics[counted] / seconds
    return rates
