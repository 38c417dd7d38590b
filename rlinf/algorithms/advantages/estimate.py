"""From rewards to advantages.

Order: token rewards (minus ``kl_coef`` times the KL of ``logprobs`` from ``ref_logprobs``, then ``reward_clip``),
``whiten_rewards``, the estimator, ``normalize_advantages`` (reinforce_pp and its baseline form always do) with
``keep_zero_groups``, ``advantage_clip``, ``use_valid_token_scale``.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rlinf.algorithms import catalog
from rlinf.algorithms.advantages.inputs import AdvantageInputs, Advantages
from rlinf.algorithms.advantages.registry import ADVANTAGES, WHITENED
from rlinf.algorithms.kl import kl_divergence
from rlinf.algorithms.rewards import row_outcomes, token_rewards
from rlinf.algorithms.statistics import ONE_RANK, Ranks, group_statistics, whiten


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
    greedy_rewards: Tensor | None = None,
    anchor_ids: Tensor | None = None,
    acted: Tensor | None = None,
    ranks: Ranks = ONE_RANK,
    **options: Any,
) -> Advantages:
    """Advantages and returns [B, T] float32 by ``adv_type``; a false mask is never read, and gives 0.

    ``rewards`` [B] (the outcome, which stands at the row's last true slot) or [B, T] (the outcome is the row's sum);
    ``mask`` [B, T] bool; ``group_ids`` [B] int64; ``greedy_rewards`` [B]; all others [B, T]. With ``ranks`` these are
    the rows of one rank, and all statistics are over all ranks.

    A row without a true slot gets 0, but its reward counts in its group's statistics: it was answered. Where a filter
    took rows out of ``mask``, ``acted`` is the mask before (read for the row's outcome if ``rewards`` are [B, T]).

    An unknown ``adv_type``, a missing column or a reward that is no number is a ValueError; an option that
    ``adv_type`` does not read is a TypeError that lists those it does.

    >>> compute_advantages("grpo", rewards=torch.tensor([1., 0.]), mask=torch.tensor([[True, True], [True, False]]),
    ...                    group_ids=torch.tensor([0, 0]), normalize_by_std=False).advantages
    tensor([[ 0.5000,  0.5000],
            [-0.5000,  0.0000]])
    """
    entry = catalog.choose("adv_type", adv_type, catalog.ADVANTAGES)
    catalog.refuse_unknown(f"adv_type: {adv_type}", options, (*catalog.ADVANTAGE_OPTIONS, *entry.options))
    own = {name: value for name, value in options.items() if name in entry.options}
    shared = {name: value for name, value in options.items() if name not in entry.options}
    mask = mask.bool()
    slot_rewards = _slot_rewards(rewards, mask, logprobs, ref_logprobs, ranks, shared)
    task_outcomes = row_outcomes(rewards, mask if acted is None else acted)
    unanswered = torch.where(mask.any(dim=1), 0.0, task_outcomes)
    inputs = AdvantageInputs(
        outcomes=slot_rewards.sum(dim=1) + unanswered,
        task_outcomes=task_outcomes,
        rewards=slot_rewards,
        mask=mask,
        group_ids=group_ids,
        values=_clean(values, mask),
        bootstrap_values=_clean(bootstrap_values, mask),
        terminated=terminated,
        truncated=truncated,
        step_rewards=_clean(step_rewards, mask),
        greedy_rewards=None if greedy_rewards is None else greedy_rewards.double(),
        anchor_ids=anchor_ids,
        ranks=ranks,
    )
    estimate = ADVANTAGES[adv_type](inputs, **own)
    if adv_type in WHITENED:
        shared["normalize_advantages"] = True
    advantages = _finished(estimate.advantages, inputs, shared)
    return Advantages(advantages.float(), torch.where(mask, estimate.returns, 0.0).float())


def _clean(column: Tensor | None, mask: Tensor) -> Tensor | None:
    return None if column is None else torch.where(mask, column.detach().double(), 0.0)


def _slot_rewards(
    rewards: Tensor,
    mask: Tensor,
    logprobs: Tensor | None,
    ref_logprobs: Tensor | None,
    ranks: Ranks,
    options: dict[str, Any],
) -> Tensor:
    """[B, T] float64: what the estimator sees as the reward of each slot."""
    kl, kl_coef = None, options.get("kl_coef", 0.0)
    if kl_coef and options.get("add_token_level_kl", True):
        if logprobs is None or ref_logprobs is None:
            raise ValueError("the token-level KL (kl_coef) needs logprobs and ref_logprobs")
        kl = kl_divergence(options.get("kl_penalty_type", "kl"), logprobs, ref_logprobs)
    slot_rewards = token_rewards(rewards, mask, kl=kl, kl_coef=kl_coef, reward_clip=options.get("reward_clip"))
    return whiten(slot_rewards, mask, ranks=ranks) if options.get("whiten_rewards") else slot_rewards


def _finished(advantages: Tensor, x: AdvantageInputs, options: dict[str, Any]) -> Tensor:
    """mask -> normalize -> mask -> clip -> scale, [B, T] float64."""
    advantages = torch.where(x.mask, advantages, 0.0)
    if options.get("normalize_advantages"):
        advantages = whiten(advantages, x.mask, ranks=x.ranks)
        if options.get("keep_zero_groups"):
            constant = group_statistics(x.task_outcomes, x.group_ids, ranks=x.ranks).constant
            advantages = torch.where(constant[:, None], 0.0, advantages)
    if options.get("advantage_clip"):
        advantages = advantages.clamp(-options["advantage_clip"], options["advantage_clip"])
    if options.get("use_valid_token_scale"):
        advantages = advantages / x.mask.sum(dim=1, keepdim=True).clamp(min=1)
    return advantages
