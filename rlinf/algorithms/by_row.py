"""Advantages of some rows of a batch, made where the rows are: on the ranks of a learner.

Estimators that read no other row (`entries.Estimator.by_row`) are computed for any rows alone. What whitening needs of
the others are a few sums of each row, added up in the order of the batch; what comparing with a group needs are numbers
of the groups, made of outcomes or of the rewards of steps, which the driver has. The advantages are the same bit for
bit however rows are divided.
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
    Advantages,
    estimate,
    estimated,
    peers_of,
    reward_moments,
    tokens_are_read_after,
    unwhitened_moments,
    whitens,
)
from rlinf.algorithms.statistics import moments_of, row_sums, settle_singletons
from rlinf.data.advantage_spec import AdvantageSpec, BatchStatistics
from rlinf.data.batch import Batch
from rlinf.data.messages import Metrics
from rlinf.schema import AlgorithmConfig

RowStatistic = Literal["rewards", "unwhitened", "advantages"]
"""What of rows is looked at: the rewards of positions before ``whiten_rewards``, advantages before they are whitened,
or as they are at last."""
CollectStatistics = Callable[[Batch, RowStatistic], Tensor]
"""Calls :func:`row_statistics` for rows wherever they are: the results [B, 3] of all, in the order of the batch."""

_READ = ("mask", "processed_rewards", "turn_starts", "old_values", "bootstrap_values", "terminated", "truncated")
_SPREAD = AdvantageSpec(AlgorithmConfig(adv_type="raw"), known=True)
"""Nothing follows the estimator."""
_OTHERS = ("ref_logprobs", "teacher_logprobs")


def columns(batch: Batch) -> tuple[str, ...]:
    """The columns of ``batch`` that its estimator reads; log-probabilities only where there are others beside them."""
    assert batch.estimation is not None
    if batch.estimation is _SPREAD:
        return _READ[:3]
    read = list(_READ)
    if batch.estimation.whole.peers is not None:
        read.append("group_ids")
    if "step_rewards" in catalog.estimator(batch.estimation.algorithm.adv_type).needs:
        read.append("step_rewards")
    if any(getattr(batch, name) is not None for name in _OTHERS):
        read += [*_OTHERS, "rollout_logprobs" if batch.old_logprobs is None else "old_logprobs"]
    return tuple(read)


def defer_advantages(
    batch: Batch, algorithm: AlgorithmConfig, x: AdvantageColumns, look: CollectStatistics
) -> tuple[Batch, Metrics] | None:
    """``batch`` with all that its ranks need to make advantages, and what to log of these; None where they can't.

    ``x`` are its columns for the estimator. Where all tokens of a row or of a turn have one advantage it is made here,
    of what rows or turns earned, and ranks only spread it, or go on with it where what follows the estimator reads
    tokens.
    """
    if batch.positions_per_reward > 1:
        return None
    few = to_segments(algorithm, x)
    if few is not None and few.starts is not None and x.values is not None:
        return None  # a critic regresses on what follows each token
    if few is not None and not tokens_are_read_after(algorithm, x):
        known = estimate(algorithm, few.columns).advantages
        moving = ((known != 0) & (few.tokens > 0)).any(dim=1)
        left = batch.replace(processed_rewards=known, turn_starts=few.starts, estimation=_SPREAD, moving=moving)
        numbers = torch.stack([known.double(), known.double().abs()]) * few.tokens
        return left, _figures(row_sums(numbers.flatten(start_dim=1)), int(few.tokens.sum()))
    by_group = catalog.estimator(algorithm.adv_type).compares or (algorithm.keep_zero_groups and whitens(algorithm))
    peers = peers_of(algorithm, x) if by_group else None
    rewards = x.rewards
    if few is not None:
        # In float64, as the estimator gives it; what came before the estimator is done.
        rewards = estimated(algorithm, few.columns)
        batch = batch.replace(turn_starts=few.starts)
        algorithm = replace(algorithm, adv_type="raw", reward_clip=None)
    entry = catalog.estimator(algorithm.adv_type)
    if not (entry.by_row or entry.compares):
        return None
    if peers is not None and algorithm.singleton_group == "error" and entry.compares_groups:
        settle_singletons(x.mask, x.mask, x.group_ids, "error", present=x.mask.any(dim=1))
    how = AdvantageSpec(algorithm, BatchStatistics(peers=peers), known=few is not None)
    return _looked_at(batch.replace(processed_rewards=rewards, estimation=how), how, look)


def _looked_at(batch: Batch, how: AdvantageSpec, look: CollectStatistics) -> tuple[Batch, Metrics]:
    """``batch``, whose advantages others make as ``how`` says, with what these have to know of all rows."""
    if how.algorithm.whiten_rewards:
        how = replace(how, whole=replace(how.whole, rewards=moments_of(look(batch, "rewards"))))
        batch = batch.replace(estimation=how)
    if whitens(how.algorithm):
        how = replace(how, whole=replace(how.whole, advantages=moments_of(look(batch, "unwhitened"))))
        batch = batch.replace(estimation=how)
    facts = look(batch, "advantages")
    return batch.replace(moving=facts[:, 2] > 0), _figures(row_sums(facts.T), int(batch.valid_counts.sum()))


def _figures(sums: Tensor, tokens: int) -> Metrics:
    """The metrics of advantages whose sum, and sum of magnitudes, ``sums`` begins with."""
    mean, absolute = (sums[:2] / max(1, tokens)).tolist()
    return {"advantage_mean": mean, "advantage_abs_mean": absolute}


def row_statistics(batch: Batch, looked: RowStatistic) -> Tensor:
    """[B, 3] float64 of each row: `statistics.row_moments` of its rewards or of its advantages before whitening, or of
    its advantages (sum, sum of magnitudes, whether any is not 0)."""
    assert batch.estimation is not None
    algorithm, whole = batch.estimation.algorithm, batch.estimation.whole
    if looked == "rewards":
        return reward_moments(algorithm, _columns(batch))
    if looked == "unwhitened":
        return unwhitened_moments(algorithm, _columns(batch), whole, known=batch.estimation.known)
    advantages = _estimate(batch).advantages
    moves, numbers = (advantages != 0).any(dim=1), advantages.double()
    return torch.stack([row_sums(numbers), row_sums(numbers.abs()), moves.double()], dim=1)


def with_advantages(batch: Batch) -> Batch:
    """The batch with the advantages and returns that were left to whoever has the rows; else as it is."""
    if batch.estimation is None:
        return batch
    advantages, returns = _estimate(batch)
    done = dict.fromkeys(("estimation", "processed_rewards", "turn_starts", "moving"))
    return batch.replace(advantages=advantages, returns=returns, **done)


def _estimate(batch: Batch) -> Advantages:
    left = batch.estimation
    assert left is not None
    return estimate(left.algorithm, _columns(batch), left.whole, known=left.known)


def _columns(batch: Batch) -> AdvantageColumns:
    rewards = batch.processed_rewards
    assert rewards is not None
    assert batch.estimation is not None
    return AdvantageColumns(
        rewards=broadcast_to_tokens(rewards, batch.turn_starts, batch.num_positions)
        if batch.estimation.known
        else rewards,
        mask=batch.mask,
        group_ids=batch.group_ids,
        values=batch.old_values,
        terminated=batch.terminated,
        truncated=batch.truncated,
        bootstrap_values=batch.bootstrap_values,
        step_rewards=batch.step_rewards,
        logprobs=batch.proximal_logprobs,
        ref_logprobs=batch.ref_logprobs,
        teacher_logprobs=batch.teacher_logprobs,
    )
