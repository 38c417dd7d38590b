"""From rewards to advantages: the inputs of an estimator, and what happens before and after it.

Order: token rewards (minus ``kl_coef`` times the KL of ``logprobs`` from ``ref_logprobs``, then ``reward_clip``),
``whiten_rewards``, the estimator, ``normalize_advantages`` (reinforce_pp and its baseline form always do) with
``keep_zero_groups``, ``opd_coef`` times the teacher's gain, ``advantage_clip``, ``use_valid_token_scale``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rlinf.algorithms import catalog
from rlinf.algorithms.entries import Estimator
from rlinf.algorithms.kl import kl_divergence
from rlinf.algorithms.rewards import clip_rewards, row_outcomes, token_rewards
from rlinf.algorithms.scan import discounted_sum, last_true
from rlinf.algorithms.settings import settings
from rlinf.algorithms.statistics import (
    GroupStatistics,
    SingletonGroup,
    group_statistics,
    row_moments,
    settle_singletons,
    whiten,
)
from rlinf.config.schema.algorithm import AlgorithmConfig
from rlinf.estimation import Moments


class Advantages(NamedTuple):
    """Both [B, T] float32, 0 under a false mask. ``returns``: what a critic regresses on."""

    advantages: Tensor
    returns: Tensor


@dataclass(frozen=True)
class AdvantageColumns:
    """The columns of whole rows that advantages are made of, as a batch has them: [B, T] unless noted otherwise."""

    rewards: Tensor
    """[B] (the outcome) or [B, T] (the outcome is the row's sum)."""
    mask: Tensor
    group_ids: Tensor
    """[B] int64."""
    values: Tensor | None = None
    terminated: Tensor | None = None
    truncated: Tensor | None = None
    bootstrap_values: Tensor | None = None
    step_rewards: Tensor | None = None
    logprobs: Tensor | None = None
    """Of the proximal policy (``Batch.old_logprobs``) where the learner recomputed them, otherwise of the policy that
    acted (``Batch.rollout_logprobs``)."""
    ref_logprobs: Tensor | None = None
    teacher_logprobs: Tensor | None = None
    greedy_rewards: Tensor | None = None
    """[B]."""
    anchor_ids: Tensor | None = None
    acted: Tensor | None = None
    """The mask before filters took rows out of it."""


@dataclass(frozen=True)
class AdvantageInputs:
    """Columns of some whole rows: [B, T] unless noted otherwise, float64 (flags: bool), 0 under a false mask."""

    outcomes: Tensor
    """[B] the reward of the whole row, as the estimator sees it."""
    task_outcomes: Tensor
    """[B] the same before the token-level KL, clipping and whitening of token rewards."""
    rewards: Tensor
    """The reward of every position; an outcome stands at the row's last valid position."""
    mask: Tensor
    group_ids: Tensor
    """[B] int64."""
    values: Tensor | None = None
    bootstrap_values: Tensor | None = None
    terminated: Tensor | None = None
    truncated: Tensor | None = None
    step_rewards: Tensor | None = None
    """NaN where no step ends."""
    teacher_gains: Tensor | None = None
    """The teacher's log-probability of each token minus the policy's."""
    greedy_rewards: Tensor | None = None
    """[B] the reward of the greedy response to the row's prompt."""
    anchor_ids: Tensor | None = None
    """int64: which state a step starts from; -1 in the positions that continue a step."""

    def outcome_statistics(self, *, std_ddof: int = 1) -> GroupStatistics:
        """Statistics of the outcomes over the rows of each group; [B]."""
        return group_statistics(self.outcomes, self.group_ids, ddof=std_ddof)

    def per_row(self, advantages: Tensor) -> Tensor:
        """[B] -> [B, T]: the same for every valid position of the row."""
        return advantages[:, None] * self.mask

    def settle_singletons(self, advantages: Tensor, raw: Tensor, singleton_group: SingletonGroup) -> Tensor:
        """:func:`settle_singletons` for the rows that have a valid position (the others get no advantage anyway)."""
        present = self.mask.any(dim=1)
        return settle_singletons(advantages, raw, self.group_ids, singleton_group, present=present)


def compute_advantages(
    adv_type: str,
    *,
    rewards: Tensor,
    mask: Tensor,
    group_ids: Tensor,
    values: Tensor | None = None,
    terminated: Tensor | None = None,
    truncated: Tensor | None = None,
    bootstrap_values: Tensor | None = None,
    step_rewards: Tensor | None = None,
    logprobs: Tensor | None = None,
    ref_logprobs: Tensor | None = None,
    teacher_logprobs: Tensor | None = None,
    greedy_rewards: Tensor | None = None,
    anchor_ids: Tensor | None = None,
    acted: Tensor | None = None,
    **options: Any,
) -> Advantages:
    """Advantages and returns [B, T] float32 by ``adv_type``; a false mask is never read, and gives 0.

    ``rewards`` [B] (the outcome, which stands at the row's last valid position) or [B, T] (the outcome is the row's
    sum);
    ``mask`` [B, T] bool; ``group_ids`` [B] int64; ``greedy_rewards`` [B]; all others [B, T].

    A row without a valid token gets 0, but its reward counts in its group's statistics: it was answered. Where a filter
    took rows out of ``mask``, ``acted`` is the mask before (read for the row's outcome if ``rewards`` are [B, T]).

    An unknown ``adv_type``, a missing column or a non-finite reward is a ValueError; an option that
    ``adv_type`` does not read, or a ``mask`` that is not bool, is a TypeError.

    >>> compute_advantages("grpo", rewards=torch.tensor([1., 0.]), mask=torch.tensor([[True, True], [True, False]]),
    ...                    group_ids=torch.tensor([0, 0]), normalize_by_std=False).advantages
    tensor([[ 0.5000,  0.5000],
            [-0.5000,  0.0000]])
    """
    entry = catalog.estimator(adv_type)
    algorithm = settings(
        {"kl_penalty_type": "kl", "add_token_level_kl": True, **options},
        (*catalog.ADVANTAGE_OPTIONS, *entry.reads),
        chosen=f"adv_type: {adv_type}",
    )
    columns = AdvantageColumns(
        rewards=rewards,
        mask=mask,
        group_ids=group_ids,
        values=values,
        terminated=terminated,
        truncated=truncated,
        bootstrap_values=bootstrap_values,
        step_rewards=step_rewards,
        logprobs=logprobs,
        ref_logprobs=ref_logprobs,
        teacher_logprobs=teacher_logprobs,
        greedy_rewards=greedy_rewards,
        anchor_ids=anchor_ids,
        acted=acted,
    )
    return estimate(replace(algorithm, adv_type=adv_type), columns)


def estimate(algorithm: AlgorithmConfig, x: AdvantageColumns, moments: Moments | None = None) -> Advantages:
    """:func:`compute_advantages` by the configuration.

    ``moments``: of the batch that these rows are part of, where advantages are whitened; None: they are all of it.
    """
    entry = catalog.estimator(algorithm.adv_type)
    mask = x.mask
    if mask.dtype != torch.bool:
        # Weights between 0 and 1 would all count as true.
        raise TypeError(f"mask must be torch.bool, not {mask.dtype}: write mask.bool(), or mask > 0")
    rows = advantages_of_rows(algorithm, x)
    if rows is not None:
        advantages = torch.where(mask, rows[:, None], 0.0)
        return Advantages(advantages, advantages)
    (advantages, returns), inputs = _estimated(algorithm, entry, x)
    advantages = _finished(advantages, inputs, algorithm, moments)
    return Advantages(advantages.float(), torch.where(mask, returns, 0.0).float())


def unwhitened_moments(algorithm: AlgorithmConfig, x: AdvantageColumns) -> Tensor:
    """The :func:`row_moments` [B, 3] of advantages before they are whitened, by the configuration."""
    (advantages, _), _ = _estimated(algorithm, catalog.estimator(algorithm.adv_type), x)
    return row_moments(advantages, x.mask)


def whitens(algorithm: AlgorithmConfig) -> bool:
    """Whether advantages are whitened over the batch."""
    return algorithm.normalize_advantages or catalog.estimator(algorithm.adv_type).whitens


def _estimated(algorithm: AlgorithmConfig, entry: Estimator, x: AdvantageColumns) -> tuple[Advantages, AdvantageInputs]:
    """The estimator's result, [B, T] float64, and what it was given."""
    mask = x.mask
    kl = _token_kl(algorithm, entry, x)
    clip_after = clips_after_norm(algorithm)
    kl_after = entry.normalises_rows and algorithm.kl_after_norm
    position_rewards = token_rewards(
        x.rewards,
        mask,
        kl=None if kl_after else kl,
        kl_coef=algorithm.kl_coef,
        reward_clip=None if clip_after else algorithm.reward_clip,
    )
    if algorithm.whiten_rewards:
        position_rewards = whiten(position_rewards, mask)
    task_outcomes = row_outcomes(x.rewards, mask if x.acted is None else x.acted)
    unanswered = torch.where(mask.any(dim=1), 0.0, task_outcomes)
    inputs = AdvantageInputs(
        outcomes=position_rewards.sum(dim=1) + unanswered,
        task_outcomes=task_outcomes,
        rewards=position_rewards,
        mask=mask,
        group_ids=x.group_ids,
        values=_clean(x.values, mask),
        bootstrap_values=_clean(x.bootstrap_values, mask),
        terminated=x.terminated,
        truncated=x.truncated,
        step_rewards=_clean(x.step_rewards, mask),
        teacher_gains=_teacher_gains(algorithm, x),
        greedy_rewards=None if x.greedy_rewards is None else x.greedy_rewards.double(),
        anchor_ids=x.anchor_ids,
    )
    found = Advantages(*entry.bind(algorithm)(inputs))
    if kl_after or clip_after:
        advantages = _after_norm(found.advantages, mask, algorithm, kl if kl_after else None)
        found = Advantages(advantages, advantages)
    return found, inputs


def _reads_outcomes_alone(algorithm: AlgorithmConfig, x: AdvantageColumns) -> bool:
    """Whether nothing around an estimator of outcomes looks at single tokens or counts them."""
    of_tokens = (
        algorithm.kl_coef and algorithm.add_token_level_kl,
        algorithm.whiten_rewards,
        algorithm.normalize_advantages,
        algorithm.opd_coef or x.teacher_logprobs is not None,
        algorithm.use_valid_token_scale,
        algorithm.reward_clip and x.rewards.ndim == 2,
    )
    return not any(of_tokens)


def advantages_of_rows(algorithm: AlgorithmConfig, x: AdvantageColumns) -> Tensor | None:
    """[B] float32: the advantage of all tokens of a row, where the configuration reads outcomes alone.

    The same numbers as token by token: they are made of rows of one token."""
    of_outcomes = catalog.estimator(algorithm.adv_type).of_outcomes and x.mask.shape[1] > 1
    if not of_outcomes or not _reads_outcomes_alone(algorithm, x):
        return None
    acted = x.mask if x.acted is None else x.acted
    rows = AdvantageColumns(
        rewards=row_outcomes(x.rewards, acted),
        mask=x.mask.any(dim=1, keepdim=True),
        group_ids=x.group_ids,
        greedy_rewards=x.greedy_rewards,
    )
    return estimate(algorithm, rows).advantages[:, 0]


def clips_after_norm(algorithm: AlgorithmConfig) -> bool:
    """Whether ``reward_clip`` bounds what the estimator normalised, and not the rewards before."""
    return catalog.estimator(algorithm.adv_type).normalises_rows and algorithm.clip_after_norm


def _after_norm(advantages: Tensor, mask: Tensor, algorithm: AlgorithmConfig, kl: Tensor | None) -> Tensor:
    """The normalised outcome of each row, clamped, as the reward of its last valid token; each token pays ``kl_coef``
    times its ``kl`` [B, T], and is clamped once more; the reward-to-go [B, T] of that. This is ROLL's order.
    """
    bound = algorithm.reward_clip if algorithm.clip_after_norm else None
    rows = clip_rewards(torch.where(last_true(mask), advantages, 0.0).sum(dim=1), bound)
    positions = token_rewards(rows, mask, kl=kl, kl_coef=algorithm.kl_coef, reward_clip=bound)
    return discounted_sum(positions, mask, torch.ones_like(positions))


def _clean(column: Tensor | None, mask: Tensor) -> Tensor | None:
    return None if column is None else torch.where(mask, column.detach().double(), 0.0)


def _token_kl(algorithm: AlgorithmConfig, entry: Estimator, x: AdvantageColumns) -> Tensor | None:
    """[B, T]: the KL that each token pays for; None where none does."""
    if not algorithm.kl_coef or not (algorithm.add_token_level_kl or entry.token_kl):
        return None
    if x.logprobs is None or x.ref_logprobs is None:
        raise ValueError("the token-level KL (kl_coef) needs logprobs and ref_logprobs")
    return kl_divergence(algorithm.kl_penalty_type, x.logprobs, x.ref_logprobs)


def _teacher_gains(algorithm: AlgorithmConfig, x: AdvantageColumns) -> Tensor | None:
    """[B, T]: log p_teacher - log p of each token; None where no teacher was asked."""
    teacher, own = _clean(x.teacher_logprobs, x.mask), _clean(x.logprobs, x.mask)
    if teacher is not None and own is not None:
        return teacher - own
    if algorithm.opd_coef or teacher is not None:
        raise ValueError("the teacher's term needs logprobs and teacher_logprobs")
    return None


def _finished(advantages: Tensor, x: AdvantageInputs, algorithm: AlgorithmConfig, moments: Moments | None) -> Tensor:
    """mask -> normalize -> mask -> teacher -> clip -> scale, [B, T] float64."""
    advantages = torch.where(x.mask, advantages, 0.0)
    if whitens(algorithm):
        advantages = whiten(advantages, x.mask, moments)
        if algorithm.keep_zero_groups:
            constant = group_statistics(x.task_outcomes, x.group_ids).constant
            advantages = torch.where(constant[:, None], 0.0, advantages)
    if algorithm.opd_coef and x.teacher_gains is not None:
        advantages = advantages + algorithm.opd_coef * x.teacher_gains
    if algorithm.advantage_clip:
        advantages = advantages.clamp(-algorithm.advantage_clip, algorithm.advantage_clip)
    if algorithm.use_valid_token_scale and algorithm.token_scale == "row":
        advantages = advantages / x.mask.sum(dim=1, keepdim=True).clamp(min=1)
    return advantages
