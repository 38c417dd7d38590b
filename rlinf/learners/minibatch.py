"""One optimiser step's rows, and the loop over them: the same for every learner that takes gradient steps."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from rlinf.algorithms.metrics import (
    PartialMetrics,
    ReducedMetrics,
    early_stop,
    finalise_metrics,
    mean_metrics,
    mean_over,
)
from rlinf.learners.partition import minibatches
from rlinf.learners.stage import Stage
from rlinf.types import Batch, Metrics, PolicyOutput


class NonFiniteUpdate(RuntimeError):
    """A loss or gradient that is no number: the weights were left as they were."""


class Minibatch:
    """The rows of one optimiser step with what is fixed for all of them before the first forward pass."""

    def __init__(self, batch: Batch, rows: Tensor, stage: Stage) -> None:
        """Raises ValueError for a batch without advantages."""
        self.stage, self.whole, self.rows, self.batch = stage, batch, rows, batch.select(rows)
        objective = stage.objective
        self.advantages = _given(self.batch.advantages)
        self.weights = objective.weights(self.batch.mask)
        shared = self.batch.positions_per_reward
        self.value_weights = objective.weights(self.batch.mask, shared=shared) if shared > 1 else None
        proximal = self.batch.old_logprobs if self.batch.old_logprobs is not None else self.batch.rollout_logprobs
        self.selected = objective.select(old_logprobs=proximal, advantages=self.advantages, mask=self.batch.mask)
        self._place = torch.full((batch.num_rows,), -1, dtype=torch.int64)
        self._place[rows] = torch.arange(len(rows))

    def places(self, rows: Tensor) -> Tensor:
        """Where ``rows`` of the whole batch stand in this minibatch."""
        return self._place[rows]

    def blank(self) -> Batch:
        """The same rows with nothing to count: for a rank that has to take part without having a row."""
        return self.batch.replace(mask=self.batch.mask & False)

    def moving(self) -> Tensor:
        """The rows without those that can't move the weights, which need no computing.

        Where the objective is a multiple of the advantage, a row whose advantages are all 0 (a group with one reward)
        has a gradient of exactly 0. It still counts in the denominators; metrics speak of the rows that are left. All
        stay where none would be left, and where something is asked about every row.
        """
        objective = self.stage.objective
        asked = objective.calculate_entropy or self.stage.early_stop_imp_ratio is not None
        if asked or not objective.idle_without_advantage:
            return self.rows
        moving = (self.batch.mask & (self.advantages != 0)).any(dim=1)
        return self.rows[moving] if bool(moving.any()) else self.rows

    def loss(self, part: Batch, places: Tensor, output: PolicyOutput) -> tuple[Tensor, PartialMetrics]:
        """The weighted sum over ``part``, the rows ``places`` as the policy sees them, and its metrics (on the CPU)."""
        device, stage = output.logprobs.device, self.stage
        old = part.old_logprobs
        on_policy = old is None and stage.old_is_current
        if old is None:
            old = output.logprobs.detach() if on_policy else part.rollout_logprobs
        loss, metrics = stage.objective(
            logprobs=output.logprobs,
            old_logprobs=old,
            advantages=_given(part.advantages),
            mask=part.mask,
            weights=self.weights[places].to(device),
            value_weights=None if self.value_weights is None else self.value_weights[places].to(device),
            values=output.values,
            old_values=part.old_values,
            returns=part.returns,
            ref_logprobs=part.ref_logprobs,
            entropy=output.entropy,
            rollout_logprobs=part.rollout_logprobs,
            selected=None if self.selected is None else self.selected[places].to(device),
        )
        if on_policy:
            gap = torch.where(part.mask, (output.logprobs.detach() - part.rollout_logprobs).abs(), 0.0)
            metrics["sampler_logprob_gap"] = mean_over(gap, part.mask)
            metrics["sampler_logprob_gap_max"] = gap.max().double(), part.mask.any().double()
        return loss, {name: (value.cpu(), count.cpu()) for name, (value, count) in metrics.items()}

    def conclude(self, merged: ReducedMetrics, step: Callable[[float], float]) -> tuple[Metrics, bool]:
        """(metrics of the minibatch, whether it took no step); ``step(loss)`` applies the gradient, gives its norm."""
        metrics = finalise_metrics(merged)
        ratio, count = merged["ratio"]
        limit = self.stage.early_stop_imp_ratio
        if limit is not None and early_stop(ratio, count, limit):
            return metrics, True
        return {**metrics, "grad_norm": step(merged["loss"][0])}, False


def train_on(
    batch: Batch, stage: Stage, *, seed: int, step: int, optimise: Callable[[Minibatch], tuple[Metrics, bool]]
) -> Metrics:
    """All epochs and minibatches of one step: means of the metrics that ``optimise`` gives, and how many were skipped.

    Raises ValueError for a batch without advantages.
    """
    metrics: list[Metrics] = []
    skipped = 0
    for epoch in range(stage.epochs):
        for rows in minibatches(batch.num_rows, parts=stage.minibatches, seed=seed, step=step, epoch=epoch):
            if len(rows):
                numbers, stopped = optimise(Minibatch(batch, rows, stage))
                metrics.append(numbers)
                skipped += stopped
    return {**mean_metrics(metrics), "skipped_minibatches": float(skipped)}


def require_finite(loss: float, norm: float, stage: Stage, optimizer_steps: int) -> None:
    """Raises NonFiniteUpdate where the loss or the gradient's norm is none."""
    if not (math.isfinite(norm) and math.isfinite(loss)):
        raise NonFiniteUpdate(
            f"optimiser step {optimizer_steps} of stage {stage.name!r}: loss {loss}, "
            f"gradient norm {norm}; the weights were left as they were"
        )


def _given(advantages: Tensor | None) -> Tensor:
    if advantages is None:
        raise ValueError("the batch has no advantages: prepare it first")
    return advantages
