"""Advantages of some rows of a batch, made where the rows are: on the ranks of a learner.

Estimators that read no other row (`entries.Estimator.by_row`) are computed for any rows alone. What whitening needs of
the others are a few sums of each row, added up in the order of the batch: the numbers are the same bit for bit however
rows are divided.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import torch
from torch import Tensor

from rlinf.algorithms import catalog
from rlinf.algorithms.advantages.estimate import AdvantageColumns, Advantages, estimate, unwhitened_moments, whitens
from rlinf.algorithms.statistics import moments_of, row_sums
from rlinf.config.schema import AlgorithmConfig
from rlinf.types import Batch, Metrics

LookAtRows = Callable[[Batch, bool], Tensor]
"""Calls :func:`row_facts` for rows wherever they are: the results [B, 3] of all, in the order of the batch."""

_READ = ("mask", "processed_rewards", "old_values", "bootstrap_values", "terminated", "truncated")
_OTHERS = ("ref_logprobs", "teacher_logprobs")


def divides(algorithm: AlgorithmConfig, batch: Batch) -> bool:
    """Whether each row's advantages can be made from the row and the moments of all."""
    alone = catalog.estimator(algorithm.adv_type).by_row and batch.positions_per_reward == 1
    return alone and not (algorithm.whiten_rewards or algorithm.keep_zero_groups)


def columns(batch: Batch) -> tuple[str, ...]:
    """The columns of ``batch`` that its estimator reads; log-probabilities only where there are others beside them."""
    if all(getattr(batch, name) is None for name in _OTHERS):
        return _READ
    return (*_READ, *_OTHERS, "rollout_logprobs" if batch.old_logprobs is None else "old_logprobs")


def divided(batch: Batch, look: LookAtRows) -> tuple[Batch, Metrics]:
    """``batch``, which says how it is to be estimated, with what its rows need to know; and what to log of them."""
    assert batch.estimation is not None
    if whitens(batch.estimation.algorithm):
        moments = moments_of(look(batch, True))
        batch = batch.replace(estimation=dataclasses.replace(batch.estimation, moments=moments))
    facts = look(batch, False)
    total, absolute, _ = row_sums(facts.T).tolist()
    count = max(1, int(batch.mask.sum()))
    metrics = {"advantage_mean": total / count, "advantage_abs_mean": absolute / count}
    return batch.replace(moving=facts[:, 2] > 0), metrics


def row_facts(batch: Batch, unwhitened: bool) -> Tensor:
    """[B, 3] float64 of each row: `statistics.row_moments` before whitening, or afterwards (sum, sum of magnitudes,
    whether any is not 0)."""
    assert batch.estimation is not None
    if unwhitened:
        return unwhitened_moments(batch.estimation.algorithm, _columns(batch))
    advantages = _estimate(batch).advantages
    moves, numbers = (advantages != 0).any(dim=1), advantages.double()
    return torch.stack([row_sums(numbers), row_sums(numbers.abs()), moves.double()], dim=1)


def with_advantages(batch: Batch) -> Batch:
    """The batch with the advantages and returns that were left to whoever has the rows; else as it is."""
    if batch.estimation is None:
        return batch
    advantages, returns = _estimate(batch)
    return batch.replace(advantages=advantages, returns=returns, estimation=None, processed_rewards=None, moving=None)


def _estimate(batch: Batch) -> Advantages:
    assert batch.estimation is not None
    return estimate(batch.estimation.algorithm, _columns(batch), batch.estimation.moments)


def _columns(batch: Batch) -> AdvantageColumns:
    assert batch.processed_rewards is not None
    return AdvantageColumns(
        rewards=batch.processed_rewards,
        mask=batch.mask,
        group_ids=batch.group_ids,
        values=batch.old_values,
        terminated=batch.terminated,
        truncated=batch.truncated,
        bootstrap_values=batch.bootstrap_values,
        logprobs=batch.rollout_logprobs if batch.old_logprobs is None else batch.old_logprobs,
        ref_logprobs=batch.ref_logprobs,
        teacher_logprobs=batch.teacher_logprobs,
    )
