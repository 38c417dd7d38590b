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
from rlinf.algorithms.advantages.estimate import (
    AdvantageColumns,
    Advantages,
    advantages_of_rows,
    estimate,
    unwhitened_moments,
    whitens,
)
from rlinf.algorithms.statistics import moments_of, row_sums
from rlinf.config.schema import AlgorithmConfig
from rlinf.estimation import Estimation
from rlinf.types import Batch, Metrics

LookAtRows = Callable[[Batch, bool], Tensor]
"""Calls :func:`row_facts` for rows wherever they are: the results [B, 3] of all, in the order of the batch."""

_READ = ("mask", "processed_rewards", "old_values", "bootstrap_values", "terminated", "truncated")
_SPREAD = Estimation(AlgorithmConfig(adv_type="raw"))
"""A row's advantage is known, and is that of all its tokens."""
_OTHERS = ("ref_logprobs", "teacher_logprobs")


def _divides(algorithm: AlgorithmConfig) -> bool:
    """Whether each row's advantages can be made from the row and the moments of all."""
    alone = catalog.estimator(algorithm.adv_type).by_row
    return alone and not (algorithm.whiten_rewards or algorithm.keep_zero_groups)


def columns(batch: Batch) -> tuple[str, ...]:
    """The columns of ``batch`` that its estimator reads; log-probabilities only where there are others beside them."""
    if batch.estimation == _SPREAD:
        return _READ[:2]
    if all(getattr(batch, name) is None for name in _OTHERS):
        return _READ
    return (*_READ, *_OTHERS, "rollout_logprobs" if batch.old_logprobs is None else "old_logprobs")


def left_to_ranks(
    batch: Batch, algorithm: AlgorithmConfig, x: AdvantageColumns, look: LookAtRows
) -> tuple[Batch, Metrics] | None:
    """``batch`` with all that its ranks need to make advantages, and what to log of these; None where they can't.

    ``x`` are its columns for the estimator. Where a row has one advantage for all its tokens it is made here, of [B]
    outcomes, and ranks only spread it.
    """
    if batch.positions_per_reward > 1:
        return None
    rows = advantages_of_rows(algorithm, x)
    if rows is None:
        if not _divides(algorithm):
            return None
        return _looked_at(batch.replace(processed_rewards=x.rewards, estimation=Estimation(algorithm)), look)
    tokens = batch.mask.sum(dim=1)
    left = batch.replace(processed_rewards=rows, estimation=_SPREAD, moving=(rows != 0) & (tokens > 0))
    of_rows = torch.stack([rows.double(), rows.double().abs()]) * tokens
    return left, _figures(row_sums(of_rows), int(tokens.sum()))


def _looked_at(batch: Batch, look: LookAtRows) -> tuple[Batch, Metrics]:
    assert batch.estimation is not None
    if whitens(batch.estimation.algorithm):
        moments = moments_of(look(batch, True))
        batch = batch.replace(estimation=dataclasses.replace(batch.estimation, moments=moments))
    facts = look(batch, False)
    return batch.replace(moving=facts[:, 2] > 0), _figures(row_sums(facts.T), int(batch.mask.sum()))


def _figures(sums: Tensor, tokens: int) -> Metrics:
    """The metrics of advantages whose sum, and sum of magnitudes, ``sums`` begins with."""
    mean, absolute = (sums[:2] / max(1, tokens)).tolist()
    return {"advantage_mean": mean, "advantage_abs_mean": absolute}


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
