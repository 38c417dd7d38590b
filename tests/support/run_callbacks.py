"""Callbacks that inspect, log, slow down and stop."""

from __future__ import annotations

import rlinf


class Watch(rlinf.Callback):
    """Remembers what it was given."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def on_start(self, start: rlinf.RunStart) -> None:
        self.calls.append(f"start after {len(start.history)}")

    def on_step(self, step: rlinf.Step) -> None:
        self.calls.append(f"step {step.number}")
        step.log("own/double_loss", 2 * step.metrics["train/loss"])

    def on_end(self, metrics: dict[str, float]) -> None:
        self.calls.append("end")
        assert "eval/return" in metrics


class Halve(rlinf.Callback):
    """Halves the learning rate after the first step."""

    def on_step(self, step: rlinf.Step) -> None:
        if step.number == 1:
            step.set_lr(step.config.learner.optimizer.lr / 2)


class StopAt(rlinf.Callback):
    def __init__(self, number: int) -> None:
        self.number = number

    def on_step(self, step: rlinf.Step) -> None:
        if step.number == self.number:
            step.stop("enough")
