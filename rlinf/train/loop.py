"""The training loop, for language models and simulators alike."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from rlinf.algorithms.prepare import AlgorithmState, prepare_batch
from rlinf.config import Config
from rlinf.config.plan.memory import needs_reference
from rlinf.errors import UserError
from rlinf.learners.stage import Stage
from rlinf.train.build.graph import Graph
from rlinf.train.build.options import holds_fragments, needs_values, training_stage
from rlinf.train.dynamic_sampling import collect_nonconstant_groups
from rlinf.train.evaluation.intervals import masked_mean
from rlinf.train.evaluation.missing_metric import missing_metric
from rlinf.train.prefetch import BatchPrefetcher
from rlinf.train.run_dir import Checkpoint, RunDirectory
from rlinf.train.tracking.metric_log import MetricLog
from rlinf.train.tracking.progress import ProgressDisplay
from rlinf.train.tracking.samples import write_episodes, write_samples
from rlinf.train.warm_starts import WarmStartCache
from rlinf.types import Batch, Metrics


class BadBatch(RuntimeError):
    """A batch with numbers that are none; it was saved, and the weights were left as they were."""


@dataclass
class Progress:
    """Where a run stands: all that the driver itself carries from step to step."""

    stage: str
    step: int = 0
    """Finished optimisation steps of the stage."""
    wall_s: float = 0.0
    initial: Metrics = field(default_factory=dict)
    evaluation: Metrics = field(default_factory=dict)
    best: tuple[float, int] | None = None
    """(value of checkpoint.best_metric, step)."""


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

    def train(self) -> Progress:
        """From wherever the run stands to its last step."""
        self.resume()
        for name, note in self.graph.notes.items():
            if note:
                self.display.say(f"{name}: {note}")
        if self.progress.stage == "sft":
            self.warm_start()
        config, state = self.config, self.progress
        self.display.phase("train", total=config.run.max_steps, done=state.step)
        with self.log(state.step) as log:
            self.graph.send_weights(state.step)
            if state.step == 0 and not state.initial:
                state.initial = self.evaluate()
                log.write(0, state.initial | self.fit_reward_model())
            while state.step < config.run.max_steps:
                began = time.perf_counter()
                batch, metrics = self.batches.take(state.step)
                if not self.batches.ahead:
                    self.graph.sleep()
                elif state.step + 1 < config.run.max_steps:
                    self.batches.begin(state.step + 1)
                batch, prepared = self.prepare(batch)
                metrics |= prepared | self.update(batch, state.step) | self.batches.settle()
                state.step += 1
                metrics |= self.send_weights(state.step) | self.refresh_reward_model(state.step)
                metrics |= speed(metrics, time.perf_counter() - began)
                metrics |= {name: float(count) for name, count in self.graph.restarts().items()}
                if self.due(config.evaluation.every):
                    metrics |= self.evaluate()
                log.write(state.step, metrics)
                self.display.step(state.step, metrics)
                self.keep_samples(batch)
                if self.due(config.checkpoint.every):
                    self.save()
                if self.after_step is not None and state.step < config.run.max_steps:
                    self.after_step(state.step)
        return state

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
            gap = masked_mean((current.logprobs - batch.logprobs).abs(), batch.mask & (ages == 0))
            if gap is not None:
                metrics["train/sampler_logprob_gap"] = gap
            values = current.values if batch.values is None else batch.values
            batch = batch.replace(old_logprobs=current.logprobs, values=values)
        if stale and not corrected:
            # The policy that answered is not the one that learns: ratios are taken against the one that answered.
            batch = batch.replace(old_logprobs=batch.logprobs)
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

    def warm_start(self) -> None:
        """Supervised steps on the environment's own demonstrations, then the stage of reinforcement learning."""
        make_batch = self.graph.warm_start_batch
        assert make_batch is not None
        state, steps = self.progress, self.config.sft.steps
        cache = WarmStartCache(self.config)
        found = cache.found()
        if found is not None:
            self.graph.learner.load(found)
            state.step = steps
            self.display.say(f"warm start taken from {found}")
        self.display.phase("warm start", total=steps, done=state.step)
        while state.step < steps:
            numbers = self.graph.learner.update(make_batch(state.step), step=state.step)
            state.step += 1
            self.display.warm(state.step, numbers)
            if self.due(self.config.checkpoint.every, of=max(1, steps)):
                self.save()
        cache.keep(self.graph.learner.save)
        self.graph.learner.start("train")
        self.progress = Progress("train", wall_s=self.wall_s())
        self._began = time.perf_counter()
        self.save()

    def check(self, batch: Batch) -> None:
        """Numbers that are none must not reach the weights."""
        for name in ("rewards", "logprobs", "values"):
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
        torch.save(vars(batch), path)
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

    def save(self) -> None:
        """Writes a checkpoint aside, then renames it: a kill at any point leaves the one before."""
        state = self.progress
        state.wall_s, self._began = self.wall_s(), time.perf_counter()
        order = state.step if state.stage == "train" else state.step - self.config.sft.steps
        folder = self.folder.reserve(order)
        self.graph.learner.save(folder)
        driver = {
            "rollout": self.graph.rollout.state_dict(),
            "algorithm": self.algorithm.state_dict(),
            "batches": self.batches.state_dict(),
        }
        torch.save(driver, folder / "driver.pt")
        if self.graph.reward_model is not None:
            self.graph.reward_model.save(folder / "reward_model")
        self.folder.commit(folder, {**vars(state), "step": order, "stage_step": state.step})
        self.folder.prune(self.config.checkpoint.keep, state.best[1] if state.best else None)

    def wall_s(self) -> float:
        """Seconds of training so far, over all sessions."""
        return self.progress.wall_s + time.perf_counter() - self._began

    def resume(self) -> None:
        """Continues from the newest whole checkpoint, bit for bit."""
        found: Checkpoint | None = self.folder.latest()
        for note in self.folder.skipped_checkpoints:
            self.display.say(f"passed over a damaged checkpoint: {note}", style="yellow")
        if found is None:
            return
        saved = dict(found.state)
        if saved["stage"] == "train" and self.progress.stage == "sft":
            self.graph.learner.start("train")
        self.graph.learner.load(found.folder)
        driver = torch.load(found.folder / "driver.pt", weights_only=False)
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
