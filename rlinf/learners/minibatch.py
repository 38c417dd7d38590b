"""One optimiser step's rows, and the loop over them: the same for every learner that takes gradient steps."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from rlinf.algorithms.aggregation import LossCounts
from rlinf.algorithms.metrics import (
    PartialMetrics,
    ReducedMetrics,
    early_stop,
    finalise_metrics,
    mean_metrics,
    mean_over,
)
from rlinf.batch_share import BatchShare, RowFacts
from rlinf.learners.partition import minibatches
from rlinf.learners.stage import Stage
from rlinf.types import Batch, Metrics, PolicyOutput

_GAP = "sampler_logprob_gap"


class NonFiniteUpdate(RuntimeError):
    """A loss or gradient that is no number: the weights were left as they were."""


class Minibatch:
    """The rows of one optimiser step with what is fixed for all of them before the first forward pass."""

    def __init__(self, batch: BatchShare, rows: Tensor, stage: Stage) -> None:
        """``rows`` of ``batch``, of which this rank may have a share. Raises ValueError for one without advantages."""
        _given(batch.held.advantages)
        self.stage, self.batch, self.rows = stage, batch, rows
        self.counts = loss_counts(batch.facts, rows)
        rewards = batch.facts.rewards
        self.reward_counts = None if rewards is None else LossCounts.of(rewards[rows])
        """Of the critic's error, where several positions have their value in common."""
        self._selected = self._select()

    def _select(self) -> Tensor | None:
        """The positions that the loss treats apart, bool by row of the batch; every row of the step must be here."""
        if "selected" not in self.stage.objective.needs:
            return None
        step = self.batch.select(self.rows)
        proximal = step.old_logprobs if step.old_logprobs is not None else step.rollout_logprobs
        found = self.stage.objective.select(old_logprobs=proximal, advantages=_given(step.advantages), mask=step.mask)
        assert found is not None
        selected = torch.zeros(self.batch.num_rows, self.batch.num_positions, dtype=torch.bool)
        selected[self.rows] = found
        return selected

    def moving(self) -> Tensor:
        """The rows without those that can't move the weights, which need no computing (:func:`moving_rows`)."""
        return moving_rows(self.rows, self.batch.facts, self.stage)

    def loss(self, part: Batch, rows: Tensor, output: PolicyOutput) -> tuple[Tensor, PartialMetrics]:
        """The weighted sum over ``part``, which are ``rows`` of the batch, and its metrics (on the CPU)."""
        device, stage = output.logprobs.device, self.stage
        old = part.old_logprobs
        on_policy = old is None and stage.old_is_current
        if old is None:
            old = output.logprobs.detach() if on_policy else part.rollout_logprobs
        shared = part.positions_per_reward
        loss, metrics = stage.objective(
            logprobs=output.logprobs,
            old_logprobs=old,
            advantages=_given(part.advantages),
            mask=part.mask,
            weights=stage.objective.weights(part.mask, counts=self.counts),
            value_weights=None
            if self.reward_counts is None
            else stage.objective.weights(part.mask, shared=shared, counts=self.reward_counts),
            values=output.values,
            old_values=part.old_values,
            returns=part.returns,
            ref_logprobs=part.ref_logprobs,
            entropy=output.entropy,
            rollout_logprobs=part.rollout_logprobs,
            selected=None if self._selected is None else self._selected[rows].to(device),
        )
        if on_policy:
            fresh = part.mask if part.fresh is None else part.mask & part.fresh
            gap = torch.where(fresh, (output.logprobs.detach() - part.rollout_logprobs).abs(), 0.0)
            metrics[_GAP] = mean_over(gap, fresh)
            metrics[f"{_GAP}_max"] = gap.max().double(), fresh.any().double()
        if device.type == "cpu":
            return loss, metrics
        return loss, {name: (value.cpu(), count.cpu()) for name, (value, count) in metrics.items()}

    def conclude(self, merged: ReducedMetrics, step: Callable[[float], float]) -> tuple[Metrics, bool]:
        """(metrics of the minibatch, whether it took no step); ``step(loss)`` applies the gradient, gives its norm."""
        if _GAP in merged and merged[_GAP][1] == 0:  # older weights chose all
            merged = {name: pair for name, pair in merged.items() if not name.startswith(_GAP)}
        metrics = finalise_metrics(merged)
        ratio, count = merged["ratio"]
        limit = self.stage.early_stop_imp_ratio
        if limit is not None and early_stop(ratio, count, limit):
            return metrics, True
        return {**metrics, "grad_norm": step(merged["loss"][0])}, False


def loss_counts(facts: RowFacts, rows: Tensor) -> LossCounts:
    """The denominators of an optimiser step over ``rows``."""
    if facts.common_length:  # always where decisions are rows: nothing to look up, nothing to add
        return LossCounts(max(float(len(rows) * facts.common_length), 1.0), max(float(len(rows)), 1.0))
    return LossCounts.of(facts.tokens[rows])


def moving_rows(rows: Tensor, facts: RowFacts, stage: Stage) -> Tensor:
    """The ``rows`` of an optimiser step without those that can't move the weights.

    Where the objective is a multiple of the advantage, a row whose advantages are all 0 (a group with one reward)
    has a gradient of exactly 0. It still counts in the denominators; metrics speak of the rows that are left. All
    stay where none would be left, and where something is asked about every row.
    """
    asked = stage.objective.calculate_entropy or stage.early_stop_imp_ratio is not None
    if asked or not stage.objective.idle_without_advantage:
        return rows
    moving = facts.moving[rows]
    return rows[moving] if bool(moving.any()) else rows


def learned_rows(batch: Batch, stage: Stage, *, independent: bool) -> Batch:
    """The batch as an optimiser step takes rows from it: of a policy whose positions are ``independent`` of each other
    (it has no memory), every decision is a row of its own.
    """
    if not (independent and stage.objective.per_token):
        return batch
    # What advantages were made of is read no more: it need not be cut up with the rest.
    return batch.replace(terminated=None, truncated=None, bootstrap_values=None, step_rewards=None).decisions_as_rows()


def train_on(
    batch: BatchShare, stage: Stage, *, seed: int, step: int, optimise: Callable[[Minibatch], tuple[Metrics, bool]]
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
