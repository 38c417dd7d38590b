"""The training loop, for language models and simulators alike."""

from __future__ import annotations

import copy
import functools
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from rlinf.algorithms.prepare import AlgorithmState, prepare_batch
from rlinf.config import Config
from rlinf.config.facts import holds_fragments, needs_reference, needs_values
from rlinf.errors import UserError
from rlinf.learners.stage import Stage
from rlinf.stopping import Stopped, held
from rlinf.train.build.graph import Graph
from rlinf.train.build.options import training_stage
from rlinf.train.checkpoints import Checkpoint
from rlinf.train.dynamic_sampling import collect_nonconstant_groups
from rlinf.train.evaluation.intervals import masked_mean
from rlinf.train.evaluation.missing_metric import missing_metric
from rlinf.train.plain_state import load_plain, save_plain
from rlinf.train.prefetch import BatchPrefetcher
from rlinf.train.progress import Progress
from rlinf.train.run_dir import RunDirectory, RunDirectoryError
from rlinf.train.tracking.metric_log import MetricLog
from rlinf.train.tracking.progress import ProgressDisplay
from rlinf.train.tracking.samples import write_episodes, write_samples
from rlinf.train.warm_starts import WarmStartCache
from rlinf.types import Batch, Metrics

_DRIVER = "driver.pt"
_log = logging.getLogger(__name__)


class BadBatch(RuntimeError):
    """A batch with numbers that are none; it was saved, and the weights were left as they were."""


class Trainer:
    """One run over a graph. :meth:`train` is the loop; the rest is what its lines mean."""

    def __init__(
        self,
        config: Config,
        graph: Graph,
        folder: RunDirectory,
        display: ProgressDisplay,
        after_step: Callable[[int], None] | None = None,
    ) -> None:
        self.after_step = after_step
        self.config, self.graph, self.folder, self.display = config, graph, folder, display
        self.algorithm = AlgorithmState.of(config.algorithm)
        in_parallel = config.cluster.backend != "local"
        self.batches = BatchPrefetcher(self.collect, ahead=config.rollout.ahead > 0, concurrent=in_parallel)
        self.progress = Progress("sft" if config.sft.steps and graph.warm_start_batch else "train")
        self.samples: list[dict[str, Any]] = []
        self._began = time.perf_counter()
        self._marked: dict[str, Any] = {}
        self._saved: dict[str, Any] | None = None

    def train(self) -> Progress:
        """From wherever the run stands to its last step; a stop signal leaves a checkpoint.

        :raises Stopped: with the step that the same command continues from.
        """
        self.resume()
        for name, note in self.graph.notes.items():
            if note:
                self.display.say(f"{name}: {note}")
        try:
            with self.log(self.logged_until()) as log:
                if self.progress.stage == "sft":
                    self.warm_start(log)
                self.train_steps(log)
        except Stopped as stop:
            self.save_stopped(stop)
            raise
        return self.progress

    def train_steps(self, log: MetricLog) -> None:
        """The steps of reinforcement learning. A stop signal is held back where the run's state is between two."""
        config, state = self.config, self.progress
        self.display.phase("train", total=config.run.max_steps, done=state.step)
        self.mark()
        self.graph.send_weights(state.step)
        if state.step == 0 and not state.initial:
            initial = self.evaluate()
            with held():
                log.write(0, initial | self.fit_reward_model())
                state.initial = initial
                self.mark()
        while state.step < config.run.max_steps or state.unfinished is not None:
            if state.unfinished is None:
                self.advance()
            metrics = dict(state.unfinished or {})
            if self.due(config.evaluation.every):
                metrics |= self.evaluate()
            with held():
                log.write(state.step, metrics)
                self.display.step(state.step, metrics)
                state.unfinished = None
                self.mark()
                if self.due(config.checkpoint.every):
                    self.save()
            if self.after_step is not None and state.step < config.run.max_steps:
                self.after_step(state.step)

    def advance(self) -> None:
        """One optimisation step, up to new weights in the samplers. Until its update begins it can be broken off."""
        config, state = self.config, self.progress
        began = time.perf_counter()
        _log.debug("step %d: collect", state.step)
        batch, metrics = self.batches.take(state.step)
        if not self.batches.ahead:
            self.graph.sleep()
        elif state.step + 1 < config.run.max_steps:
            self.batches.begin(state.step + 1)
        batch, prepared = self.prepare(batch)
        with held():
            _log.debug("step %d: update", state.step)
            metrics |= prepared | self.update(batch, state.step) | self.batches.settle()
            state.step += 1
            metrics |= self.send_weights(state.step) | self.refresh_reward_model(state.step)
            metrics |= speed(metrics, time.perf_counter() - began)
            metrics |= {name: float(count) for name, count in self.graph.restarts().items()}
            self.keep_samples(batch)
            state.unfinished = metrics
            self.mark()

    def collect(self, step: int) -> tuple[Batch, Metrics]:
        """The batch of a step; with dynamic sampling, from as many rollouts as it takes."""
        wanted, rollout = self.config.algorithm, self.graph.rollout
        if not self.batches.ahead:
            self.graph.learner.sleep()  # an evaluation or a checkpoint may have woken it
        if not wanted.dynamic_sampling:
            return rollout.collect(step)
        return collect_nonconstant_groups(
            lambda number: rollout.collect(step, round=number),
            groups=self.config.rollout.batch_size,
            max_rounds=wanted.max_resample,
        )

    def prepare(self, batch: Batch) -> tuple[Batch, Metrics]:
        """What the learner says of the batch (proximal, reference, critic), then rewards and advantages."""
        began = time.perf_counter()
        self.check(batch)
        if not self.graph.on_policy:
            return batch, {}
        judged: Metrics = {}
        if self.graph.reward_model is not None:
            batch, judged = self.graph.reward_model.score(batch)
        stage = self.stage
        ages = self.progress.step - batch.policy_version
        # One batch ahead, or with responses continued from an earlier step.
        stale = bool((ages > 0)[batch.mask].any())
        metrics: Metrics = {"rollout/staleness": masked_mean(ages, batch.mask) or 0.0}
        corrected = stage.objective.needs & {"rollout_logprobs"}
        if needs_values(self.config) or corrected or not (stale or stage.old_is_current):
            current = self.graph.learner.evaluate(batch)
            gap = masked_mean((current.logprobs - batch.rollout_logprobs).abs(), batch.mask & (ages == 0))
            if gap is not None:
                metrics["train/sampler_logprob_gap"] = gap
            values = current.values if batch.old_values is None else batch.old_values
            batch = batch.replace(old_logprobs=current.logprobs, old_values=values)
        if stale and not corrected:
            # The policy that answered is not the one that learns: ratios are taken against the one that answered.
            batch = batch.replace(old_logprobs=batch.rollout_logprobs)
        if needs_reference(self.config):
            batch = batch.replace(ref_logprobs=self.graph.learner.evaluate(batch, reference=True).logprobs)
        batch, numbers = prepare_batch(
            batch, self.config.algorithm, self.algorithm, fragments=holds_fragments(self.config)
        )
        metrics |= judged | {f"algorithm/{name}": value for name, value in numbers.items()}
        return batch, {**metrics, "time/prepare_s": time.perf_counter() - began}

    def update(self, batch: Batch, step: int) -> Metrics:
        """The learner's optimiser steps; a batch that fails is saved for inspection."""
        began = time.perf_counter()
        try:
            numbers = self.graph.learner.update(batch, step=step)
        except Exception:
            self.quarantine(batch)
            raise
        every = self.config.algorithm.ref_update_every
        if every and (step + 1) % every == 0:
            self.graph.learner.refresh_reference()
        metrics = {f"train/{name}": value for name, value in numbers.items()}
        return {**metrics, "time/update_s": time.perf_counter() - began}

    def fit_reward_model(self) -> Metrics:
        """A learned reward starts from the policy's first responses."""
        if self.graph.reward_model is None:
            return {}
        return self.graph.reward_model.begin(self.graph.rollout, self.graph.learner)

    def refresh_reward_model(self, step: int) -> Metrics:
        """It follows the policy: after so many steps it learns from its newest responses."""
        return {} if self.graph.reward_model is None else self.graph.reward_model.refresh(step)

    def send_weights(self, version: int) -> Metrics:
        """Learner to samplers; the next response follows the new weights."""
        began = time.perf_counter()
        # Where they share a device: the optimiser leaves it before samplers come back, the weights once they are sent.
        slept = self.graph.learner.sleep(keep_weights=True)
        self.graph.wake()
        numbers = self.graph.send_weights(version)
        for name, value in self.graph.learner.sleep().items():
            numbers[name] = value + slept[name]
        metrics = {f"weights/{name}": value for name, value in numbers.items()}
        return {**metrics, "time/weights_s": time.perf_counter() - began}

    def evaluate(self) -> Metrics:
        if self.graph.evaluate is None:
            return {}
        began = time.perf_counter()
        _log.debug("step %d: evaluate", self.progress.step)
        step, film = self.progress.step, self.graph.film
        if film is not None and self.due(self.config.evaluation.video_every):
            evaluation = film(step)
        else:
            evaluation = self.graph.evaluate()
        self.progress.evaluation, self.samples = evaluation.metrics, evaluation.samples
        for note in evaluation.notes:
            self.display.say(f"step {step}: {note}", style="yellow")
        write_episodes(self.folder.path, step, evaluation.episodes)
        self.note_best(evaluation.metrics)
        return {**evaluation.metrics, "time/evaluation_s": time.perf_counter() - began}

    def note_best(self, metrics: Metrics) -> None:
        """Remembers the step with the highest `checkpoint.best_metric`; one that is never measured is a UserError."""
        metric, best = self.config.checkpoint.best_metric, self.progress.best
        if metric is None:
            return
        missing = missing_metric(metric, metrics, self.config.env.success_key)
        if missing is not None and best is None:
            raise UserError(f"checkpoint.best_metric: {missing}")
        if metric in metrics and (best is None or metrics[metric] > best[0]):
            self.progress.best = (metrics[metric], self.progress.step)

    def warm_start(self, log: MetricLog) -> None:
        """Supervised steps on the environment's own demonstrations, then the stage of reinforcement learning.

        A line of metrics has the step of the weights that its loss was measured with: from ``-sft.steps`` to -1, so
        that reinforcement learning begins at 0 with the weights after the last supervised step.
        """
        make_batch = self.graph.warm_start_batch
        assert make_batch is not None
        state, steps = self.progress, self.config.sft.steps
        metrics = self.evaluate_untrained()
        cache = WarmStartCache(self.config)
        found = cache.found()
        if found is not None:
            self.graph.learner.load(found)
            state.step = steps
            self.display.say(f"warm start taken from {found}")
            if metrics:
                log.write(-steps, metrics)
        self.display.phase("warm start", total=steps, done=state.step)
        self.mark()
        while state.step < steps:
            batch = make_batch(state.step)
            _log.debug("step %d of the warm start: update", state.step)
            with held():
                numbers = self.graph.learner.update(batch, step=state.step)
                log.write(self.order(), metrics | {f"sft/{name}": value for name, value in numbers.items()})
                metrics = {}
                state.step += 1
                self.display.warm(state.step, numbers)
                self.mark()
                if self.due(self.config.checkpoint.every, of=max(1, steps)):
                    self.save()
        with held():
            cache.keep(self.graph.learner.save)
            self.graph.learner.start("train")
            self.progress = Progress("train", wall_s=self.wall_s(), untrained=state.untrained)
            self._began = time.perf_counter()
            self.mark()
            self.save()

    def evaluate_untrained(self) -> Metrics:
        """Before a warm start that is all there is to a run; training that follows has its own first evaluation."""
        if self.graph.evaluate is None or self.config.run.max_steps or self.progress.step:
            return {}
        self.graph.send_weights(self.order())
        self.progress.untrained = self.graph.evaluate().metrics
        return self.progress.untrained

    def check(self, batch: Batch) -> None:
        """Numbers that are none must not reach the weights."""
        for name in ("rewards", "rollout_logprobs", "old_values"):
            column = getattr(batch, name)
            if column is None:
                continue
            bad = ~torch.isfinite(column) & (batch.mask if column.ndim == 2 else batch.mask.any(dim=1))
            if bool(bad.any()):
                rows = bad.reshape(batch.num_rows, -1).any(dim=1).nonzero()[:, 0].tolist()
                path = self.quarantine(batch)
                where = f"step {self.progress.step}: {name} is NaN or infinite in rows {rows[:8]}"
                raise BadBatch(f"{where}; batch saved to {path}")

    def quarantine(self, batch: Batch) -> str:
        """Saves a batch for inspection."""
        path = self.folder.path / "quarantine" / f"step_{self.progress.step:06d}.pt"
        path.parent.mkdir(exist_ok=True)
        save_plain(batch, path)
        return str(path)

    def due(self, every: int, *, of: int | None = None) -> bool:
        """Whether something that happens each ``every`` steps, and after the last one, happens now."""
        last = self.progress.step == (of or self.config.run.max_steps)
        return last or (every > 0 and self.progress.step % every == 0)

    @functools.cached_property
    def stage(self) -> Stage:
        """Of reinforcement learning; an off-policy learner has none, and is not asked for it."""
        return training_stage(self.config)

    def keep_samples(self, batch: Batch) -> None:
        logging = self.config.logging
        if logging.samples_every and (self.progress.step - 1) % logging.samples_every == 0:
            write_samples(
                self.folder.path,
                self.progress.step,
                batch,
                groups=logging.sample_groups,
                evaluate=self.graph.learner.evaluate,
            )

    def log(self, from_step: int) -> MetricLog:
        say = functools.partial(self.display.say, style="yellow")
        return MetricLog(self.folder.path, self.config, from_step=from_step, say=say)

    def mark(self) -> None:
        """Remembers what the driver holds beside the learner, which has just come to a state that can be saved."""
        rollout, algorithm = self.graph.rollout.state_dict(), self.algorithm.state_dict()
        # Copies: they change in place while the next batch is collected. A batch that waits does not.
        self._marked = {
            "rollout": copy.deepcopy(rollout),
            "algorithm": copy.deepcopy(algorithm),
            "batches": self.batches.state_dict(),
        }

    def save(self) -> None:
        """Writes a checkpoint of what was marked last aside, then renames it: a kill leaves the one before."""
        state = self.progress
        state.wall_s, self._began = self.wall_s(), time.perf_counter()
        order = self.order()
        _log.debug("step %d: checkpoint", order)
        self.folder.checkpoints.write(order, {**vars(state), "stage_step": state.step}, self._fill)
        self.folder.checkpoints.prune(self.config.checkpoint.keep, state.best[1] if state.best else None)
        self._saved = self._marked

    def _fill(self, folder: Path) -> None:
        """Writes learner, driver and reward model into the folder of a checkpoint."""
        self.graph.learner.save(folder)
        save_plain(self._marked, folder / _DRIVER)
        if self.graph.reward_model is not None:
            self.graph.reward_model.save(folder / "reward_model")

    def order(self) -> int:
        """The step that a checkpoint of now is named after; those of a warm start are negative."""
        state = self.progress
        return state.step if state.stage == "train" else state.step - self.config.sft.steps

    def save_stopped(self, stop: Stopped) -> None:
        """Saves what was marked last, where it is not saved yet; at a second signal the checkpoint before has to do."""
        if self._marked is not self._saved:
            self.display.say("saving a checkpoint")
            self.save()
        stop.outlook = f"the same command continues from {self.where()}"

    def where(self) -> str:
        """The place of the run in words."""
        state = self.progress
        if state.stage == "sft":
            return f"step {state.step} of the warm start"
        warmed = not state.step and self.config.sft.steps and self.graph.warm_start_batch is not None
        return "the end of the warm start" if warmed else f"step {state.step}"

    def logged_until(self) -> int:
        """The last step whose line of metrics stays when the run goes on from here; what follows is written again."""
        state = self.progress
        if state.stage == "train" and state.unfinished is None and (state.step or state.initial):
            return state.step
        return self.order() - 1

    def wall_s(self) -> float:
        """Seconds of training so far, over all sessions."""
        return self.progress.wall_s + time.perf_counter() - self._began

    def resume(self) -> None:
        """Continues from the newest whole checkpoint, bit for bit.

        Raises UserError where checkpoints are there and none of them can be used: starting again would lose the run.
        """
        survey = self.folder.checkpoints.survey()
        for note in survey.damaged:
            self.display.say(f"passed over a damaged checkpoint: {note}", style="yellow")
        if survey.newest is not None:
            self._restore(survey.newest)
        elif survey.damaged:
            raise self.folder.nothing_whole(survey)

    def _restore(self, found: Checkpoint) -> None:
        try:
            self._load(found)
        except UserError:
            raise
        except Exception as error:
            # Its files are as they were written, or from a version that kept no checksums to tell.
            reason = str(error).strip().splitlines()
            raise RunDirectoryError(
                f"{found.folder} cannot be loaded ({type(error).__name__}: {reason[-1] if reason else ''}): remove it "
                "to go on from the one before, or choose another run.dir"
            ) from error

    def _load(self, found: Checkpoint) -> None:
        saved = dict(found.state)
        if saved["stage"] == "train" and self.progress.stage == "sft":
            self.graph.learner.start("train")
        self.graph.learner.load(found.folder)
        driver = load_plain(found.folder / _DRIVER)
        missing = {"rollout", "algorithm", "batches"} - set(driver)
        if missing:
            raise UserError(
                f"{found.folder} was written by another version of rlinf: it has no {', '.join(sorted(missing))}"
            )
        self.graph.rollout.load_state_dict(driver["rollout"])
        self.algorithm.load_state_dict(driver["algorithm"])
        self.batches.load_state_dict(driver["batches"])
        if self.graph.reward_model is not None:
            self.graph.reward_model.load(found.folder / "reward_model")
        self.progress = Progress(
            stage=saved["stage"],
            step=saved["stage_step"],
            wall_s=saved["wall_s"],
            initial=saved["initial"],
            evaluation=saved["evaluation"],
            best=tuple(saved["best"]) if saved["best"] else None,
            unfinished=saved.get("unfinished"),
            untrained=saved.get("untrained", {}),
        )
        self.display.say(f"continuing from {found.folder.name} of stage {saved['stage']}")


def speed(metrics: Metrics, seconds: float) -> Metrics:
    """Rates of a step."""
    rates = {"time/step_s": seconds}
    if "rollout/tokens" in metrics:
        rates["speed/tokens_per_s"] = metrics["rollout/tokens"] / seconds
    if "rollout/env_steps" in metrics:
        rates["speed/steps_per_s"] = metrics["rollout/env_steps"] / seconds
    return rates
