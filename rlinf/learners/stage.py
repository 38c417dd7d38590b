"""A stage of learning: an objective, an optimiser, and how each batch is cut."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlinf.algorithms.objective import Objective
from rlinf.data.messages import Metrics
from rlinf.schema import OptimizerConfig


@dataclass(frozen=True)
class Stage:
    """A supervised warm start is one stage, reinforcement learning the next; each starts a new optimiser."""

    name: str
    objective: Objective
    optimizer: OptimizerConfig
    steps: int = 1
    """Batches of this stage; with epochs and minibatches they give the schedule's length."""
    epochs: int = 1
    minibatches: int = 1
    early_stop_imp_ratio: float | None = None
    sampled: bool = True
    """Whether a sampler drew the rows: their log-probabilities under the policy that drew them are then known."""
    reference: bool = False
    """Keep a copy of the weights at the stage's start as the reference policy."""

    @property
    def optimizer_steps(self) -> int:
        return self.steps * self.steps_per_batch

    @property
    def steps_per_batch(self) -> int:
        return self.epochs * self.minibatches

    def saved(self, optimizer_steps: int) -> dict[str, Any]:
        """Return what a checkpoint after ``optimizer_steps`` has of the stage, for :meth:`resumed`."""
        return {"stage": self.name, "optimizer_steps": optimizer_steps, "steps_per_batch": self.steps_per_batch}

    def resumed(self, saved: Mapping[str, Any], folder: Path) -> int:
        """Compute the optimiser steps behind this stage, from what the checkpoint in ``folder`` has of it.

        They differ from the saved ones if batches are now cut differently (a population does so). The learning rate
        continues: a warm-up counts optimiser steps however batches are cut, and what follows it falls
        towards the same batch.

        >>> before = Stage("train", None, OptimizerConfig(), epochs=8).saved(40)
        >>> Stage("train", None, OptimizerConfig(), epochs=2).resumed(before, Path("step_5"))
        10
        >>> Stage("train", None, OptimizerConfig(warmup_steps=20), epochs=2, steps=10).resumed(before, Path("step_5"))
        20

        Raises ValueError for another stage's checkpoint.
        """
        if saved["stage"] != self.name:
            raise ValueError(f"the checkpoint in {folder} is of stage {saved['stage']!r}, not {self.name!r}")
        done, before = int(saved["optimizer_steps"]), int(saved.get("steps_per_batch", self.steps_per_batch))
        warmup = self.optimizer.warmup_steps
        if before == self.steps_per_batch or done < warmup:
            return done
        length_before = max(1, self.steps * before - warmup)
        return max(warmup, warmup + (done - warmup) * (self.optimizer_steps - warmup) // length_before)

    @property
    def old_is_current(self) -> bool:
        """With one optimiser step per batch the proximal policy is the current one: nothing to recompute."""
        return self.steps_per_batch == 1

    def lr_factor(self, done: int) -> float:
        """Return the share of the learning rate after ``done`` optimiser steps."""
        return lr_factor(
            done,
            schedule=self.optimizer.schedule,
            total_steps=self.optimizer_steps,
            warmup_steps=self.optimizer.warmup_steps,
            min_lr_ratio=self.optimizer.min_lr_ratio,
        )

    def clip_factor(self, done: int) -> float:
        """Return the share of the clip ranges after ``done`` optimiser steps, if they fall with the run.

        >>> [Stage("train", None, OptimizerConfig(), steps=2, epochs=2).clip_factor(done) for done in range(4)]
        [1.0, 0.75, 0.5, 0.25]
        """
        return lr_factor(done, schedule="linear", total_steps=self.optimizer_steps)

    def clip_metrics(self, done: int) -> Metrics:
        """Return the share that the last of ``done`` optimiser steps had, if clip ranges fall with the run."""
        return {"clip_factor": self.clip_factor(max(done - 1, 0))} if self.objective.scheduled else {}


def lr_factor(step: int, *, schedule: str, total_steps: int, warmup_steps: int = 0, min_lr_ratio: float = 0.0) -> float:
    """Compute the share of the learning rate at optimiser step ``step`` (from 0): linear warm-up, then the schedule.

    >>> [round(lr_factor(s, schedule="linear", total_steps=4, warmup_steps=2), 2) for s in range(5)]
    [0.5, 1.0, 1.0, 0.5, 0.0]
    """
    if step < warmup_steps:
        return (step + 1) / warmup_steps
    if schedule == "constant":
        return 1.0
    done = min(1.0, (step - warmup_steps) / max(1, total_steps - warmup_steps))
    left = 1.0 - done if schedule == "linear" else 0.5 * (1.0 + math.cos(math.pi * done))
    return min_lr_ratio + (1.0 - min_lr_ratio) * left
