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
from rlinf.algorithms.advantages.columns import AdvantageColumns, broadcast_to_tokens, to_segments
from rlinf.algorithms.kl import token_kl
from rlinf.algorithms.rewards import clip_rewards, row_outcomes, token_rewards
from rlinf.algorithms.scan import discounted_sum, last_true
from rlinf.algorithms.settings import settings
from rlinf.algorithms.statistics import (
    GroupStatistics,
    SingletonGroup,
    group_statistics,
    moments_of,
    row_moments,
    settle_singletons,
    whiten,
)
from rlinf.base.errors import RunFailed
from rlinf.base.user_code import returned
from rlinf.data.advantage_spec import BatchStatistics, GroupNumbers, MeanStd
from rlinf.data.columns import RewardDetails
from rlinf.schema.algorithm import AlgorithmConfig


class Advantages(NamedTuple):
    """Both [B, T] float32, 0 under a false mask. ``returns``: what a critic regresses on."""

    advantages: Tensor
    returns: Tensor


@dataclass(frozen=True)
class AdvantageInputs:
    """Columns of some whole rows: [B, T] unless noted otherwise, float64 (flags: bool), 0 under a false mask."""

    outcomes: Tensor
    """[B] the reward of each row as the estimator compares it: with KL penalty, clipping and whitening applied."""
    task_outcomes: Tensor
    """[B] the reward that the task gave, clipped, before the token-level KL and the whitening of token rewards."""
    rewards: Tensor
    """The reward of every position; an outcome stands at the row's last valid position."""
    mask: Tensor
    """True at the positions that the policy chose."""
    group_ids: Tensor
    """[B] int64: rows of one prompt (or start state) have the same number."""
    lengths: Tensor
    """[B] int64: valid positions, also of rows that a filter took out of ``mask``."""
    whitening_scale: float = 1.0
    """The deviation that ``whiten_rewards`` divided the rewards by; 1 without it."""
    group_numbers: GroupNumbers | None = None
    """Numbers of the groups, where some of their rows are elsewhere."""
    values: Tensor | None = None
    """The critic's value before each position; None without a critic."""
    bootstrap_values: Tensor | None = None
    """The critic's value of the last observation of a truncated episode, at its last position."""
    terminated: Tensor | None = None
    """True at the position that ended an episode by itself: nothing follows it."""
    truncated: Tensor | None = None
    """True at the position where a limit ended an episode: its value continues with ``bootstrap_values``."""
    step_rewards: Tensor | None = None
    """The reward of each step at its last position; NaN where no step ends."""
    teacher_gains: Tensor | None = None
    """The teacher's log-probability of each token minus the policy's."""
    greedy_rewards: Tensor | None = None
    """[B] the reward of the greedy response to the row's prompt."""
    reward_terms: Tensor | None = None
    """[B, K] the terms that a row's reward is the weighted sum of; NaN: not measured."""
    reward_weights: Tensor | None = None
    """[B, K] their weights."""
    anchor_ids: Tensor | None = None
    """int64: which state a step starts from; -1 in the positions that continue a step."""

    def outcome_statistics(self, *, std_ddof: int = 1) -> GroupStatistics:
        """Statistics of the outcomes over the rows of each group; [B]."""
        return group_statistics(self.outcomes, self.group_ids, ddof=std_ddof)

    def constant_groups(self) -> Tensor:
        """Bool [B]: all rows of the group have one outcome."""
        if self.group_numbers is None:
            return group_statistics(self.task_outcomes, self.group_ids).constant
        return self.group_numbers.constant[self._index(self.group_ids)]

    def _index(self, group_ids: Tensor) -> Tensor:
        assert self.group_numbers is not None
        return torch.searchsorted(self.group_numbers.groups, group_ids.contiguous())

    def compared(self, values: Tensor, group_ids: Tensor, *, std_ddof: int = 1) -> tuple[Tensor, Tensor]:
        """Mean and deviation, of its whole group, for each of ``values`` [N] with ``group_ids`` [N]. Estimators of rows
        state in the catalog what these are (`Estimator.compares`)."""
        if self.group_numbers is None:
            group = group_statistics(values, group_ids, ddof=std_ddof)
            return group.mean, group.std
        index = self._index(group_ids)
        return self.group_numbers.mean[index], self.group_numbers.std[index]

    def per_row(self, advantages: Tensor) -> Tensor:
        """[B] -> [B, T]: the same for every valid position of the row."""
        return advantages[:, None] * self.mask

    def settle_singletons(self, advantages: Tensor, raw: Tensor, singleton_group: SingletonGroup) -> Tensor:
        """:func:`settle_singletons` for the rows that have a valid position (the others get no advantage anyway)."""
        present = self.mask.any(dim=1)
        size = None if self.group_numbers is None else self.group_numbers.size[self._index(self.group_ids)]
        return settle_singletons(advantages, raw, self.group_ids, singleton_group, present=present, size=size)


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
    reward_terms: Tensor | None = None,
    reward_weights: Tensor | None = None,
    anchor_ids: Tensor | None = None,
    acted: Tensor | None = None,
    **options: Any,
) -> Advantages:
    """Compute advantages and returns [B, T] float32 by ``adv_type``; a false mask is never read, and gives 0.

    ``rewards`` [B] (the outcome, which stands at the row's last valid position) or [B, T] (the outcome is the
    row's sum); ``mask`` [B, T] bool; ``group_ids`` [B] int64; ``greedy_rewards`` [B]; ``reward_terms`` and
    ``reward_weights`` [B, K], which belong together; all others [B, T].

    A row without a valid token gets 0, but its reward counts in its group's statistics: it was answered. If a
    filter took rows out of ``mask``, ``acted`` is the mask before (read for the row's outcome if ``rewards`` are
    [B, T]).

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
        logprobs=logprobs,
        ref_logprobs=ref_logprobs,
        teacher_logprobs=teacher_logprobs,
        details=RewardDetails(step_rewards, reward_terms, reward_weights, greedy_rewards),
        anchor_ids=anchor_ids,
        acted=acted,
    )
    return estimate(replace(algorithm, adv_type=adv_type), columns)


def estimate(
    algorithm: AlgorithmConfig, x: AdvantageColumns, whole: BatchStatistics | None = None, *, precomputed: bool = False
) -> Advantages:
    """:func:`compute_advantages` by the configuration.

    ``whole``: of the batch that these rows are part of; None: they are all of it. ``precomputed``: ``x.rewards`` [B, T]
    are already the estimator's result.
    """
    mask = x.mask
    if mask.dtype != torch.bool:
        # Weights between 0 and 1 would all count as true.
        raise TypeError(f"mask must be torch.bool, not {mask.dtype}: write mask.bool(), or mask > 0")
    complete = not tokens_are_read_after(algorithm, x)
    if precomputed and complete:
        advantages = torch.where(mask, x.rewards, 0.0).float()
        return Advantages(advantages, advantages)
    few = to_segments(algorithm, x) if complete and not precomputed else None
    if few is not None:
        result = estimate(algorithm, few.columns)
        advantages, returns = (
            torch.where(mask, broadcast_to_tokens(one, few.starts, mask.shape[1]), 0.0) for one in result
        )
        return Advantages(advantages, advantages if few.starts is None else returns)
    whole = whole or BatchStatistics()
    (advantages, returns), inputs = run_estimator(algorithm, x, whole, precomputed=precomputed)
    advantages = _finished(advantages, inputs, algorithm, whole.advantages)
    return Advantages(advantages.float(), torch.where(mask, returns, 0.0).float())


def group_numbers(algorithm: AlgorithmConfig, x: AdvantageColumns) -> GroupNumbers:
    """Numbers of the groups of the batch ``x`` that its rows are compared by, by the configuration."""
    outcomes = _task_outcomes(algorithm, x)
    groups, index = torch.unique(x.group_ids, return_inverse=True)
    of_rows = group_statistics(outcomes, x.group_ids)
    result, members, steps = of_rows, index, x.details.step_rewards
    if catalog.estimator(algorithm.adv_type).compares == "steps" and steps is not None:
        ends = x.mask & ~steps.isnan()
        members = index[ends.nonzero()[:, 0]]
        result = group_statistics(steps[ends], members, ddof=algorithm.std_ddof)
    blank = torch.zeros(len(groups), dtype=torch.float64, device=groups.device)
    return GroupNumbers(
        groups,
        mean=blank.scatter(0, members, result.mean),
        std=blank.scatter(0, members, result.std),
        size=blank.scatter(0, index, of_rows.count),
        constant=blank.bool().scatter(0, index, of_rows.constant),
    )


def whitens(algorithm: AlgorithmConfig) -> bool:
    """Whether advantages are whitened over the batch."""
    return algorithm.normalize_advantages or catalog.estimator(algorithm.adv_type).whitens


def position_rewards(algorithm: AlgorithmConfig, x: AdvantageColumns, mask: Tensor) -> Tensor:
    """Compute the reward of every position of ``mask``, [B, T] float64, before ``whiten_rewards``.

    It includes the KL of each token if that comes before the estimator."""
    return token_rewards(
        x.rewards,
        mask,
        kl=None if _kl_after_norm(algorithm) else _token_kl(algorithm, x),
        kl_coef=algorithm.kl_coef,
        reward_clip=_clip_before_norm(algorithm),
    )


def _task_outcomes(algorithm: AlgorithmConfig, x: AdvantageColumns) -> Tensor:
    """[B] float64: see :attr:`AdvantageInputs.task_outcomes`."""
    return row_outcomes(clip_rewards(x.rewards.double(), _clip_before_norm(algorithm)), x.before_filters)


def _clip_before_norm(algorithm: AlgorithmConfig) -> float | None:
    return None if clips_after_norm(algorithm) else algorithm.reward_clip


def run_estimator(
    algorithm: AlgorithmConfig, x: AdvantageColumns, whole: BatchStatistics, *, precomputed: bool = False
) -> tuple[Advantages, AdvantageInputs]:
    """Compute the estimator's result, [B, T] float64, before whitening and all else that follows it; and its inputs."""
    mask, acted, details = x.mask, x.before_filters, x.details
    # Rows that a filter took out stand in their groups as the others do: with their KL, clipped, whitened.
    earned = position_rewards(algorithm, x, acted)
    # Rows without a token to stand at: clipped and whitened as the rewards of tokens are.
    without = task_outcomes = _task_outcomes(algorithm, x)
    moments = None
    if algorithm.whiten_rewards:
        moments = whole.rewards or moments_of(row_moments(earned, mask))
        earned = whiten(earned, acted, moments)
        without = (without - moments.mean) / moments.scale
    rewards = earned if x.acted is None else torch.where(mask, earned, 0.0)
    unanswered = torch.where(acted.any(dim=1), 0.0, without)
    inputs = AdvantageInputs(
        outcomes=earned.sum(dim=1) + unanswered,
        task_outcomes=task_outcomes,
        rewards=rewards,
        mask=mask,
        group_ids=x.group_ids,
        lengths=x.row_lengths(),
        whitening_scale=1.0 if moments is None else moments.scale,
        group_numbers=whole.groups,
        values=_clean(x.values, mask),
        bootstrap_values=_clean(x.bootstrap_values, mask),
        terminated=x.terminated,
        truncated=x.truncated,
        step_rewards=_clean(details.step_rewards, mask),
        teacher_gains=_teacher_gains(algorithm, x),
        greedy_rewards=None if details.greedy_rewards is None else details.greedy_rewards.double(),
        reward_terms=None if details.reward_terms is None else details.reward_terms.double(),
        reward_weights=None if details.reward_weights is None else details.reward_weights.double(),
        anchor_ids=x.anchor_ids,
    )
    if precomputed:
        return Advantages(rewards, rewards), inputs
    estimator = catalog.estimator(algorithm.adv_type).bind(algorithm)
    result = _returned(estimator(inputs), mask.shape, f"adv_type: {algorithm.adv_type}")
    kl_after = _kl_after_norm(algorithm)
    if kl_after or clips_after_norm(algorithm):
        # ROLL's order: the clamped outcome is the last token's reward, tokens pay for their KL and are clamped again.
        bound = algorithm.reward_clip if algorithm.clip_after_norm else None
        kl = _token_kl(algorithm, x) if kl_after else None
        rows = clip_rewards(torch.where(last_true(mask), result.advantages, 0.0).sum(dim=1), bound)
        positions = token_rewards(rows, mask, kl=kl, kl_coef=algorithm.kl_coef, reward_clip=bound)
        advantages = discounted_sum(positions, mask, torch.ones_like(positions))
        result = Advantages(advantages, advantages)
    return result, inputs


def _returned(made: object, shape: torch.Size, called: str) -> Advantages:
    """Check the result of an estimator, which may be a user's own; raise RunFailed if it is not two columns [B, T]."""
    pair = isinstance(made, tuple) and len(made) == len(Advantages._fields)
    result = Advantages(*made) if pair and isinstance(made, tuple) else returned(made, Advantages, called)
    for name, column in result._asdict().items():
        if column.shape != shape:
            shape_given, requested = list(column.shape), list(shape)
            raise RunFailed(
                f"{called} returned {name} {shape_given}, and must return {requested}: x.per_row makes it of [B]"
            )
    return result


def tokens_are_read_after(algorithm: AlgorithmConfig, x: AdvantageColumns) -> bool:
    """Return whether the steps after an estimator read single tokens or count them."""
    of_tokens = (
        algorithm.normalize_advantages,
        algorithm.opd_coef or x.teacher_logprobs is not None,
        algorithm.use_valid_token_scale,
    )
    return any(of_tokens)


def clips_after_norm(algorithm: AlgorithmConfig) -> bool:
    """Whether ``reward_clip`` bounds what the estimator normalised, and not the rewards before."""
    return catalog.estimator(algorithm.adv_type).normalises_rows and algorithm.clip_after_norm


def _kl_after_norm(algorithm: AlgorithmConfig) -> bool:
    """Whether each token pays for its KL after the estimator normalised its row's outcome."""
    return catalog.estimator(algorithm.adv_type).normalises_rows and algorithm.kl_after_norm


def _clean(column: Tensor | None, mask: Tensor) -> Tensor | None:
    return None if column is None else torch.where(mask, column.detach().double(), 0.0)


def _token_kl(algorithm: AlgorithmConfig, x: AdvantageColumns) -> Tensor | None:
    """[B, T]: the KL that each token pays for; None if none does."""
    if not algorithm.kl_coef or not catalog.estimator(algorithm.adv_type).penalises_tokens(algorithm):
        return None
    if x.logprobs is None or x.ref_logprobs is None:
        raise ValueError("the token-level KL (kl_coef) needs logprobs and ref_logprobs")
    return token_kl(algorithm, x.logprobs, x.ref_logprobs)


def _teacher_gains(algorithm: AlgorithmConfig, x: AdvantageColumns) -> Tensor | None:
    """[B, T]: log p_teacher - log p of each token; None if there is no teacher."""
    teacher, own = _clean(x.teacher_logprobs, x.mask), _clean(x.logprobs, x.mask)
    if teacher is not None and own is not None:
        return teacher - own
    if algorithm.opd_coef or teacher is not None:
        raise ValueError("the teacher's term needs logprobs and teacher_logprobs")
    return None


def _finished(advantages: Tensor, x: AdvantageInputs, algorithm: AlgorithmConfig, moments: MeanStd | None) -> Tensor:
    """mask -> normalize -> mask -> teacher -> clip -> scale, [B, T] float64."""
    advantages = torch.where(x.mask, advantages, 0.0)
    if whitens(algorithm):
        advantages = whiten(advantages, x.mask, moments)
        if algorithm.keep_zero_groups:
            constant = x.constant_groups()
            advantages = torch.where(constant[:, None], 0.0, advantages)
    if algorithm.opd_coef and x.teacher_gains is not None:
        advantages = advantages + algorithm.opd_coef * x.teacher_gains
    if algorithm.advantage_clip:
        advantages = advantages.clamp(-algorithm.advantage_clip, algorithm.advantage_clip)
    if algorithm.use_valid_token_scale and algorithm.token_scale == "row":
        advantages = advantages / x.mask.sum(dim=1, keepdim=True).clamp(min=1)
    return advantages
