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
from rlinf.base.errors import RunFailed
from rlinf.data.batch import Batch
from rlinf.data.inputs import TextInputs
from rlinf.data.messages import Metrics, PolicyOutput
from rlinf.data.shards import RankBatch, StepShard, StepTotals
from rlinf.learners.stage import Stage

_GAP = "sampler_logprob_gap"
_OF_SAMPLERS = ("ratio", "ratio_max", "approx_kl_k1", "approx_kl_k3")
"""Metrics that compare the policy with the one that drew the rows."""


class NonFiniteUpdate(RunFailed):
    """A loss or gradient that is no number: the weights were left as they were."""


class Minibatch:
    """This rank's part of an optimiser step, with what is fixed for all of its rows before the first forward pass."""

    def __init__(
        self, batch: RankBatch, part: StepShard, step: StepTotals, stage: Stage, *, first: bool = False
    ) -> None:
        """``part`` and ``step`` are of ``batch``; ``first``: no step of it was taken before.

        Raises ValueError for a batch without advantages."""
        _given(batch.batch.advantages)
        self.stage, self.batch, self.part, self.step, self._first = stage, batch, part, step, first
        self._selected: Tensor | None = None
        if "selected" in stage.objective.needs:
            # What the loss treats separately, bool by row of the batch: chosen among all rows of the step.
            assert step.rows is not None
            rows = batch.select(step.rows)
            result = stage.objective.select(
                old_logprobs=rows.proximal_logprobs, advantages=_given(rows.advantages), mask=rows.mask
            )
            assert result is not None
            self._selected = torch.zeros_like(batch.batch.mask)
            self._selected[step.rows] = result

    def scored(self, part: Batch) -> Tensor:
        """[B, T] bool: the positions of ``part`` whose log-probabilities its loss reads."""
        environment = self._environment(part)
        return part.mask if environment is None else part.mask | environment

    def _environment(self, part: Batch) -> Tensor | None:
        """[B, T] bool: the tokens that the environment wrote in rows that are learned from; None if they are not."""
        if "environment" not in self.stage.objective.needs:
            return None
        lengths = TextInputs.of(part.inputs).response_lengths
        inside = torch.arange(part.num_positions, device=part.mask.device) < lengths[:, None]
        # Features of pictures are numbered below 0: they are no tokens of the vocabulary.
        return inside & ~part.mask & part.mask.any(dim=1, keepdim=True) & (part.actions >= 0)

    def loss(
        self, part: Batch, rows: Tensor, output: PolicyOutput, *, optimizer_steps: int
    ) -> tuple[Tensor, PartialMetrics]:
        """Compute the weighted sum over ``part``, which are ``rows`` of the batch, and its metrics (on the CPU).

        ``optimizer_steps``: those that the stage has behind it."""
        device, stage = output.logprobs.device, self.stage
        old = part.old_logprobs
        on_policy = old is None and stage.old_is_current
        if old is None:
            old = output.logprobs.detach() if on_policy else part.rollout_logprobs
        shared, environment = part.positions_per_reward, self._environment(part)
        loss, metrics = stage.objective(
            logprobs=output.logprobs,
            old_logprobs=old,
            advantages=_given(part.advantages),
            mask=part.mask,
            weights=stage.objective.weights(part.mask, counts=self.step.counts),
            value_weights=None
            if self.step.reward_counts is None
            else stage.objective.weights(part.mask, shared=shared, counts=self.step.reward_counts),
            values=output.values,
            old_values=part.old_values,
            returns=part.returns,
            ref_logprobs=part.ref_logprobs,
            entropy=output.entropy,
            rollout_logprobs=part.rollout_logprobs if stage.sampled else None,
            selected=None if self._selected is None else self._selected[rows].to(device),
            environment=None
            if environment is None
            else stage.objective.weights(part.mask, counts=self.step.counts, environment=environment),
            clip_factor=stage.clip_factor(optimizer_steps) if stage.objective.scheduled else 1.0,
        )
        if stage.sampled and (on_policy or (self._first and part.fresh is not None)):
            fresh = part.mask if part.fresh is None else part.mask & part.fresh
            gap = torch.where(fresh, (output.logprobs.detach() - part.rollout_logprobs).abs(), 0.0)
            metrics[_GAP] = mean_over(gap, fresh)
            metrics[f"{_GAP}_max"] = gap.max().double(), fresh.any().double()
        if device.type == "cpu":
            return loss, metrics
        return loss, {name: (value.cpu(), count.cpu()) for name, (value, count) in metrics.items()}

    def conclude(self, merged: ReducedMetrics) -> tuple[Metrics, bool]:
        """(metrics of the minibatch, whether the policy has moved so far that its step is skipped)."""
        if _GAP in merged and merged[_GAP][1] == 0:  # older weights chose all
            merged = {name: pair for name, pair in merged.items() if not name.startswith(_GAP)}
        metrics = finalise_metrics(merged)
        if not self.stage.sampled:
            metrics = {name: value for name, value in metrics.items() if name not in _OF_SAMPLERS}
        ratio, count = merged["ratio"]
        limit = self.stage.early_stop_imp_ratio
        return metrics, limit is not None and early_stop(ratio, count, limit)


def learned_rows(batch: Batch, stage: Stage, *, independent: bool) -> Batch:
    """Return the batch as an optimiser step takes rows from it.

    If the policy's positions are ``independent`` of each other (it has no memory), every decision is a row of its
    own.
    """
    if not (independent and stage.objective.per_token):
        return batch
    # What advantages were made of is read no more: it need not be cut up with the rest.
    return batch.replace(terminated=None, truncated=None, bootstrap_values=None, step_rewards=None).decisions_as_rows()


def train_on(batch: RankBatch, stage: Stage, *, optimise: Callable[[Minibatch], tuple[Metrics, bool]]) -> Metrics:
    """All optimiser steps of one batch: means of the metrics that ``optimise`` gives, and how many were skipped.

    Raises ValueError for a batch without advantages.
    """
    metrics: list[Metrics] = []
    skipped = 0
    for number, (part, step) in enumerate(zip(batch.parts, batch.steps, strict=True)):
        numbers, stopped = optimise(Minibatch(batch, part, step, stage, first=number == 0))
        metrics.append(numbers)
        skipped += stopped
    return {**mean_metrics(metrics), "skipped_minibatches": float(skipped)}


def require_finite(loss: float, norm: float, stage: Stage, optimizer_steps: int) -> None:
    """Raise NonFiniteUpdate if the loss or the gradient's norm is not finite."""
    if not (math.isfinite(norm) and math.isfinite(loss)):
        raise NonFiniteUpdate(
            f"optimiser step {optimizer_steps} of stage {stage.name!r}: loss {loss}, "
            f"gradient norm {norm}; the weights were left as they were. Usual reasons are a learner.optimizer.lr that "
            "is too large, and rewards or observations whose squares are infinite in float32"
        )


def _given(advantages: Tensor | None) -> Tensor:
    if advantages is None:
        raise ValueError("the batch has no advantages: prepare it first")
    return advantages
