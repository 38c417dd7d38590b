"""Makes of a rollout what the learner trains on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import torch
from torch import Tensor

from rlinf.algorithms.prepare import AlgorithmState, prepare_batch
from rlinf.algorithms.statistics import masked_mean
from rlinf.config.facts import SettledConfig
from rlinf.train.build.stages import training_stage
from rlinf.train.teacher import Teach
from rlinf.train.workers.learner_pool import LearnerPool
from rlinf.types import Batch, Metrics


class Preparation(Protocol):
    """Prepares a batch between rollout and update."""

    def prepare(self, batch: Batch, step: int) -> tuple[Batch, Metrics]:
        """The batch that the learner updates on after ``step`` finished iterations."""

    def state_dict(self) -> Mapping[str, Any]:
        """The state that the next batch depends on; part of every checkpoint."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...


class OffPolicy:
    """The learner keeps transitions in a replay buffer: it takes them as they come."""

    def prepare(self, batch: Batch, step: int) -> tuple[Batch, Metrics]:
        return batch, {}

    def state_dict(self) -> Mapping[str, Any]:
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        pass


class OnPolicy:
    """Adds what learner (proximal, reference, critic) and teacher say of the batch; then rewards and advantages."""

    def __init__(self, config: SettledConfig, learner: LearnerPool, teacher: Teach | None = None) -> None:
        self._facts, self._learner, self._teacher = config.facts, learner, teacher
        self._bound = config.rollout.staleness
        self._stage = training_stage(config)
        self._options, self._algorithm = config.algorithm, AlgorithmState.of(config.algorithm)

    def prepare(self, batch: Batch, step: int) -> tuple[Batch, Metrics]:
        batch, metrics = self._with_old(batch, step - batch.policy_version)
        if self._facts.needs_reference:
            batch = batch.replace(ref_logprobs=self._learner.evaluate(batch, reference=True).logprobs)
        if self._teacher is not None:
            batch = batch.replace(teacher_logprobs=self._teacher(batch))
        fragments = self._facts.holds_fragments
        batch, numbers = prepare_batch(batch, self._options, self._algorithm, fragments=fragments)
        return batch, metrics | {f"algorithm/{name}": value for name, value in numbers.items()}

    def _with_old(self, batch: Batch, ages: Any) -> tuple[Batch, Metrics]:
        """With the log-probabilities of the proximal policy and the critic's values, where somebody reads them.

        ``ages`` [B, T] are versions of the weights since a position was sampled: more than 0 one batch ahead, or where
        responses were continued from an earlier iteration.
        """
        stale = bool((ages > 0)[batch.mask].any())
        metrics: Metrics = {"rollout/staleness": masked_mean(ages, batch.mask)}
        if self._bound:
            metrics |= _age_shares(ages[batch.mask], self._bound)
        corrected = self._stage.objective.needs & {"rollout_logprobs"}
        if not (self._facts.recomputes_logprobs or corrected):
            # They came with the actions, of the same weights and the same arithmetic.
            stale = stale or not self._stage.old_is_current
        elif self._facts.needs_values or corrected or not (stale or self._stage.old_is_current):
            current = self._learner.evaluate(batch)
            fresh = batch.mask & (ages == 0)
            if fresh.any():
                gap = (current.logprobs - batch.rollout_logprobs).abs()
                metrics["train/sampler_logprob_gap"] = masked_mean(gap, fresh)
            values = current.values if batch.old_values is None else batch.old_values
            batch = batch.replace(old_logprobs=current.logprobs, old_values=values)
        if stale and not corrected:
            # The policy that answered is not the one that learns: ratios are taken against the one that answered.
            batch = batch.replace(old_logprobs=batch.rollout_logprobs)
        return batch, metrics

    def state_dict(self) -> Mapping[str, Any]:
        return self._algorithm.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._algorithm.load_state_dict(state)


def _age_shares(ages: Tensor, bound: int) -> Metrics:
    """The largest of the ages [N] of tokens, and which share of them has each age up to ``bound``."""
    counts = torch.bincount(ages.clamp(min=0), minlength=bound + 1).tolist()
    shares = {f"rollout/age/{age}": count / max(1, len(ages)) for age, count in enumerate(counts)}
    return {"rollout/staleness_max": float(ages.max()) if len(ages) else 0.0, **shares}
