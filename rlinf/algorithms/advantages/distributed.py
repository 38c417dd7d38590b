"""Advantages of rows that are on the ranks of a learner: the driver makes the rule, each rank computes its own rows.

Estimators that read no other row (`entries.Estimator.by_row`) are computed for any rows alone. Whitening needs a few
sums of each row, added up in the order of the batch. A comparison with a group needs statistics of the groups, made of
outcomes or of the rewards of steps, which the driver has. The advantages are bit-equal however rows are divided.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from rlinf.algorithms import catalog
from rlinf.algorithms.advantages.columns import AdvantageColumns, broadcast_to_tokens, to_segments
from rlinf.algorithms.advantages.estimate import (
    estimate,
    group_numbers,
    position_rewards,
    run_estimator,
    tokens_are_read_after,
    whitens,
)
from rlinf.algorithms.statistics import moments_of, row_moments, row_sums, settle_singletons
from rlinf.data.advantage_spec import AdvantageSpec, BatchStatistics, PendingAdvantages, PreparedRows
from rlinf.data.batch import Batch
from rlinf.data.messages import Metrics
from rlinf.data.remote_rows import RemoteRows
from rlinf.schema import AlgorithmConfig

RowStatistic = Literal["rewards", "unwhitened", "advantages"]
"""The rewards of positions before ``whiten_rewards``, the advantages before they are whitened, or the final ones."""
CollectStatistics = Callable[[PreparedRows, RowStatistic], Tensor]
"""Calls :func:`row_statistics` for the rows wherever they are: the results [B, 3], in the order of the batch."""

_READ = ("mask", "old_values", "bootstrap_values", "terminated", "truncated")
_BROADCAST = AdvantageSpec(AlgorithmConfig(adv_type="raw"), precomputed=True)
"""Nothing follows the estimator: ranks copy each number to the tokens of its row or turn."""
_OTHERS = ("ref_logprobs", "teacher_logprobs")


def columns(prepared: PreparedRows) -> tuple[str, ...]:
    """Return the columns of a batch that its pending advantages are computed from."""
    spec, rows = prepared.pending.spec, prepared.rows
    if spec is _BROADCAST:
        return ("mask",)
    read = list(_READ)
    if spec.statistics.groups is not None:
        read.append("group_ids")
    if "step_rewards" in catalog.estimator(spec.algorithm.adv_type).needs:
        read.append("step_rewards")
    # The policy's own log-probabilities are read only against those of another policy.
    logprobs = (*_OTHERS, "old_logprobs")
    there = {n for n in logprobs if (rows.has(n) if isinstance(rows, RemoteRows) else getattr(rows, n) is not None)}
    if not there.isdisjoint(_OTHERS):
        read += [*_OTHERS, "old_logprobs" if "old_logprobs" in there else "rollout_logprobs"]
    return tuple(read)


def defer_advantages(
    rows: Batch | RemoteRows, algorithm: AlgorithmConfig, x: AdvantageColumns, collect: CollectStatistics
) -> tuple[PreparedRows, Metrics] | None:
    """Make the rule by which ranks compute the advantages of ``rows``, and the metrics of these; None if they cannot.

    ``x`` are the columns for the estimator. When all tokens of a row or of a turn have one advantage it is computed
    here, from the outcomes of rows or turns. Ranks only broadcast it, or apply what follows the estimator to tokens.
    """
    if isinstance(rows, Batch) and rows.positions_per_reward > 1:
        return None
    segments = to_segments(algorithm, x)
    if segments is not None and segments.starts is not None and x.values is not None:
        return None  # a critic regresses on what follows each token
    if segments is not None and not tokens_are_read_after(algorithm, x):
        known = estimate(algorithm, segments.columns).advantages
        has_gradient = ((known != 0) & (segments.tokens > 0)).any(dim=1)
        prepared = PreparedRows(rows, PendingAdvantages(_BROADCAST, known, segments.starts, has_gradient))
        numbers = torch.stack([known.double(), known.double().abs()]) * segments.tokens
        return prepared, _figures(row_sums(numbers.flatten(start_dim=1)), int(segments.tokens.sum()))
    by_group = catalog.estimator(algorithm.adv_type).compares or (algorithm.keep_zero_groups and whitens(algorithm))
    groups = group_numbers(algorithm, x) if by_group else None
    rewards, starts = x.rewards, None
    if segments is not None:
        # In float64, as the estimator gives it; what came before the estimator is done.
        made, _ = run_estimator(replace(algorithm, opd_coef=0.0), segments.columns, BatchStatistics())
        rewards, starts = made.advantages, segments.starts
        algorithm = replace(algorithm, adv_type="raw", reward_clip=None)
    entry = catalog.estimator(algorithm.adv_type)
    if not (entry.by_row or entry.compares):
        return None
    if groups is not None and algorithm.singleton_group == "error" and entry.compares_groups:
        settle_singletons(x.mask, x.mask, x.group_ids, "error", present=x.mask.any(dim=1))
    spec = AdvantageSpec(algorithm, BatchStatistics(groups=groups), precomputed=segments is not None)
    return _with_statistics(PreparedRows(rows, PendingAdvantages(spec, rewards, starts)), collect)


def _with_statistics(prepared: PreparedRows, collect: CollectStatistics) -> tuple[PreparedRows, Metrics]:
    """Add the statistics of all rows that whitening needs, and which rows have a gradient."""
    algorithm = prepared.pending.spec.algorithm
    statistics = prepared.pending.spec.statistics
    if algorithm.whiten_rewards:
        statistics = replace(statistics, rewards=moments_of(collect(prepared, "rewards")))
        prepared = _with(prepared, statistics)
    if whitens(algorithm):
        statistics = replace(statistics, advantages=moments_of(collect(prepared, "unwhitened")))
        prepared = _with(prepared, statistics)
    sums = collect(prepared, "advantages")
    pending = replace(prepared.pending, has_gradient=sums[:, 2] > 0)
    figures = _figures(row_sums(sums.T), int(prepared.valid_counts.sum()))
    return replace(prepared, pending=pending), figures


def _with(prepared: PreparedRows, statistics: BatchStatistics) -> PreparedRows:
    """Copy with these statistics of the batch in the rule."""
    spec = replace(prepared.pending.spec, statistics=statistics)
    return replace(prepared, pending=replace(prepared.pending, spec=spec))


def _figures(sums: Tensor, tokens: int) -> Metrics:
    """Compute the metrics of advantages whose sum, and sum of magnitudes, ``sums`` begins with."""
    mean, absolute = (sums[:2] / max(1, tokens)).tolist()
    return {"advantage_mean": mean, "advantage_abs_mean": absolute}


def row_statistics(batch: Batch, pending: PendingAdvantages, statistic: RowStatistic) -> Tensor:
    """[B, 3] float64 of each row: `statistics.row_moments` of its rewards or of its advantages before whitening, or of
    its advantages (sum, sum of magnitudes, whether any is not 0)."""
    spec, x = pending.spec, _columns(batch, pending)
    if statistic == "rewards":
        return row_moments(position_rewards(spec.algorithm, x, x.mask), x.mask)
    if statistic == "unwhitened":
        made, _ = run_estimator(spec.algorithm, x, spec.statistics, precomputed=spec.precomputed)
        return row_moments(made.advantages, x.mask)
    advantages, _ = estimate(spec.algorithm, x, spec.statistics, precomputed=spec.precomputed)
    moves, numbers = (advantages != 0).any(dim=1), advantages.double()
    return torch.stack([row_sums(numbers), row_sums(numbers.abs()), moves.double()], dim=1)


def with_advantages(batch: Batch, pending: PendingAdvantages) -> Batch:
    """Compute the pending advantages and returns of rows that are here."""
    spec = pending.spec
    x = _columns(batch, pending)
    advantages, returns = estimate(spec.algorithm, x, spec.statistics, precomputed=spec.precomputed)
    return batch.replace(advantages=advantages, returns=returns)


def complete(rows: Batch | RemoteRows | PreparedRows) -> Batch:
    """Bring the rows here, with the advantages that ranks would compute: for samples, quarantine and checkpoints."""
    if isinstance(rows, PreparedRows):
        return with_advantages(rows.rows.fetch(), rows.pending)
    return rows.fetch()


def _columns(batch: Batch, pending: PendingAdvantages) -> AdvantageColumns:
    rewards = pending.rewards
    if pending.spec.precomputed:
        rewards = broadcast_to_tokens(rewards, pending.segment_starts, batch.num_positions)
    return AdvantageColumns.of(batch, rewards)
