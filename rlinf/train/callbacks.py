"""Callbacks of a user's own between the training iterations of a run: inspect, log, save, slow down, stop."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlinf.base.errors import UserError
from rlinf.base.user_code import Signature, kind_of
from rlinf.config import Config
from rlinf.config.checks.metric_names import metric_mistake
from rlinf.data.messages import Metrics


@dataclass(frozen=True)
class RunStart:
    """A callback's information when a run begins, or goes on."""

    config: Config
    folder: Path
    history: Sequence[Mapping[str, float]]
    """The lines of ``metrics.jsonl`` so far, each with its ``step``; empty in a new run."""


@dataclass
class Step:
    """A training iteration that has just ended: its numbers, and what a callback requests.

    Requests take effect before the next iteration begins: a rate from then on, a checkpoint and a stop right now.
    """

    number: int
    config: Config
    folder: Path
    metrics: Metrics
    """Everything that was measured, the evaluation included where there was one. Read it; :meth:`log` adds to it."""
    lr_scale: float = 1.0
    """What the learning rate of the configuration and its schedule are multiplied by."""
    save_requested: bool = False
    stop_reason: str | None = None
    logged: Metrics = field(default_factory=dict)

    def log(self, name: str, value: float) -> None:
        """Record a metric of yours in this step's line, TensorBoard and the other services; names are ``own/...``.

        Raises ValueError for a name that the run writes itself.
        """
        if name in self.metrics:
            other = f"own/{name.rpartition('/')[2]}"
            raise ValueError(f"{name} is a metric of the run: choose another name, such as {other}")
        self.logged[name] = float(value)

    def set_lr(self, lr: float) -> None:
        """Set the peak learning rate (``learner.optimizer.lr``); schedule and critic's rate follow in proportion."""
        if not lr >= 0:
            raise ValueError(f"a learning rate is a number from 0 up, not {lr}")
        if not self.config.learner.optimizer.lr:
            raise ValueError("learner.optimizer.lr is 0, and no other rate is in proportion to it")
        self.lr_scale = lr / self.config.learner.optimizer.lr

    def save(self) -> None:
        """Write a checkpoint of this step."""
        self.save_requested = True

    def stop(self, reason: str) -> None:
        """End the run after this step: it is evaluated, saved and exported as if it were the last one."""
        self.stop_reason = reason

    def samples(self) -> list[dict[str, Any]]:
        """Read the graded responses, or rows, that ``logging.samples_every`` kept of this step; empty if it kept
        none."""
        from rlinf.base.json_files import read_json_lines

        path = self.folder / "samples" / f"step_{self.number:06d}.jsonl"
        return list(read_json_lines(path).rows) if path.exists() else []


class Callback:
    """Derive from it, and override what you need. Methods run in the driver, between iterations; training waits.

    A run that is resumed calls :meth:`on_start` again with its history: a callback that remembers anything restores it
    from there, so that a resumed run decides what an uninterrupted one would.
    """

    def on_start(self, start: RunStart) -> None:
        """Handle the begin of the run, or its continuation."""

    def on_step(self, step: Step) -> None:
        """Handle the end of a training iteration, whose line of metrics is not written yet."""

    def on_end(self, metrics: Metrics) -> None:
        """Handle the end of the run: its last evaluation."""


_METHODS: Mapping[str, Signature] = {
    "on_start": Signature(("a RunStart",)),
    "on_step": Signature(("a Step",)),
    "on_end": Signature(("the last metrics",)),
}


def require_callbacks(callbacks: Sequence[Callback]) -> None:
    """Raise UserError for what is no list of objects with the methods of :class:`Callback`."""
    if not isinstance(callbacks, Sequence):
        raise UserError(f"callbacks must be a list, not {kind_of(callbacks)}: write callbacks=[...]")
    for callback in callbacks:
        name = getattr(callback, "__name__", type(callback).__name__)
        if isinstance(callback, type):
            raise UserError(f"callbacks: {name} is a class: give an object of it, {name}(...)")
        for method, call in _METHODS.items():
            if not hasattr(callback, method):
                raise UserError(f"callbacks: {name} has no method {method}: derive its class from rlinf.Callback")
            misfit = call.misfit(getattr(callback, method))
            if misfit:
                raise UserError(f"callbacks: {name}.{method} {misfit}")


class StopAfter(Callback):
    """Ends a run after iteration ``last``, for ``reason``."""

    def __init__(self, last: int, reason: str) -> None:
        self.last, self.reason = last, reason

    def on_step(self, step: Step) -> None:
        if step.number >= self.last:
            step.stop(self.reason)


class EarlyStopping(Callback):
    """Stops a run whose metric has not improved by ``min_delta`` in the last ``patience`` values."""

    def __init__(self, metric: str, *, patience: int = 3, min_delta: float = 0.0, mode: str = "max") -> None:
        if mode not in ("max", "min"):
            raise ValueError(f"mode is max or min, not {mode}")
        self.metric, self.patience, self.min_delta, self.sign = metric, patience, min_delta, 1 if mode == "max" else -1
        self.best, self.waited = float("-inf"), 0

    def on_start(self, start: RunStart) -> None:
        self.best, self.waited = float("-inf"), 0
        mistake = metric_mistake(start.config, self.metric)
        if mistake is not None:
            raise UserError(f"EarlyStopping: {mistake.message} {mistake.fix}")
        for line in start.history:
            if self.metric in line and line["step"] >= 0:
                self._take(line[self.metric])

    def on_step(self, step: Step) -> None:
        if self.metric in step.metrics and self._take(step.metrics[self.metric]):
            best = self.sign * self.best
            step.stop(f"{self.metric} has not improved in its last {self.waited} values (best {best:.4g})")

    def _take(self, value: float) -> bool:
        if self.sign * value > self.best + self.min_delta:
            self.best, self.waited = self.sign * value, 0
        else:
            self.waited += 1
        return self.waited >= self.patience


class LearningRateSchedule(Callback):
    """Sets the learning rate by a function of the finished iterations: ``LearningRateSchedule(lambda step: ...)``."""

    def __init__(self, function: Callable[[int], float]) -> None:
        self.function = function

    def on_step(self, step: Step) -> None:
        step.set_lr(float(self.function(step.number)))
