"""The inputs and the result of an estimator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from rlinf.algorithms.statistics import GroupStatistics, SingletonGroup, group_statistics, settle_singletons


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
