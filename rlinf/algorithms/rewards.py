"""Outcome rewards before the estimator: normalisation over the group, the batch or the whole run, clipping, shaping."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor

from rlinf.algorithms import catalog
from rlinf.algorithms.running import RewardState, RunningStatistics
from rlinf.algorithms.scan import last_true
from rlinf.algorithms.settings import settings
from rlinf.algorithms.statistics import EPS, group_statistics, settle_singletons
from rlinf.schema.algorithm import AlgorithmConfig, OverlongPenaltyConfig, RewardNormConfig, Scope

SCOPES = ("group", "batch", "running")


def _reward_norm_of(
    option: RewardNormConfig | Mapping[str, Any] | str | None, *, shift: bool = False, scale: bool = False
) -> RewardNormConfig:
    """From ``{mean, std}``, or a scope with ``reward_shift`` (mean only; it wins) or ``reward_scale`` (std only).

    >>> _reward_norm_of("group", scale=True)
    RewardNormConfig(mean=None, std='group')
    """
    if isinstance(option, Mapping):
        unknown = set(option) - {"mean", "std"}
        if unknown:
            raise TypeError(f"reward_norm has no option {', '.join(sorted(unknown))}; it reads: mean, std")
        option = RewardNormConfig(**option)
    if isinstance(option, RewardNormConfig):
        if shift or scale:
            raise ValueError("reward_shift and reward_scale go with a plain reward_norm, not with {mean, std}")
        norm = option
    else:
        given = cast("Scope | None", option)
        norm = RewardNormConfig(None if scale and not shift else given, None if shift else given)
    for part, scope in (("mean", norm.mean), ("std", norm.std)):
        if scope is not None and scope not in SCOPES:
            raise ValueError(f"reward_norm.{part} must be null or one of {', '.join(SCOPES)}, got {scope!r}")
    return norm


def process_rewards(
    rewards: Tensor,
    *,
    group_ids: Tensor,
    mask: Tensor | None = None,
    state: RewardState | None = None,
    domains: Sequence[str] | None = None,
    fragments: bool = False,
    **options: Any,
) -> Tensor:
    """Return normalised, then clipped rewards, float32, in the shape they came in.

    ``rewards`` [B], or [B, T] with its ``mask`` (false ones become 0); ``group_ids`` [B]. The sample of a row is
    its outcome: ``(R - mean) / (std + 1e-6)``; a deviation of 0 does not divide. Of several rewards in a row each
    is divided, and the mean is subtracted at the last valid one, so that they add up to the normalised outcome.
    With ``fragments``, rows are no whole episodes and their sums mean nothing, so every valid reward is a sample.

    ``state`` keeps the ``running`` statistics, which take in the batch before they are used; without one they are
    those of this batch. ``domains`` (B names) keeps the statistics of the task families of a mixed batch
    separate; ``reward_norm`` may then be a mapping from domain to norm.

    ``options``: reward_norm, reward_shift, reward_scale, reward_clip (0 or null: off), std_ddof (1),
    singleton_group (error); any other is a TypeError that lists them.

    >>> process_rewards(torch.tensor([1., 3., 9.]), group_ids=torch.tensor([0, 0, 0]), reward_norm="group",
    ...     reward_shift=True, reward_clip=3.0)
    tensor([-3.0000, -1.3333,  3.0000])

    Two conversations of two turns each, with outcomes 1 and 0:

    >>> turns = torch.tensor([[.5, .5], [0., 0.]])
    >>> process_rewards(turns, mask=turns >= 0, group_ids=torch.tensor([0, 0]), reward_norm="group",
    ...     reward_shift=True)
    tensor([[ 0.5000,  0.0000],
            [ 0.0000, -0.5000]])
    """
    algorithm = settings(options, catalog.REWARD_OPTIONS, chosen="process_rewards")
    present = torch.ones_like(rewards, dtype=torch.bool) if rewards.ndim == 1 or mask is None else mask
    normalised = normalise_rewards(
        rewards, present, group_ids, algorithm, state=state, domains=domains, fragments=fragments
    )
    return clip_rewards(normalised, algorithm.reward_clip).float()


def clip_rewards(rewards: Tensor, bound: float | None) -> Tensor:
    """Clamped to +- ``bound`` (0 or null: off)."""
    return rewards.clamp(-bound, bound) if bound else rewards


def normalise_rewards(
    rewards: Tensor,
    present: Tensor,
    group_ids: Tensor,
    algorithm: AlgorithmConfig,
    *,
    state: RewardState | None = None,
    domains: Sequence[str] | None = None,
    fragments: bool = False,
) -> Tensor:
    """Normalise rewards [B] or [B, T] by the rules of :func:`process_rewards`, float64; 0 where not ``present``."""
    positions = torch.where(present, rewards.double(), 0.0)
    if algorithm.reward_norm is None:
        return positions
    state = RewardState() if state is None else state
    by_position = rewards.ndim == 2 and fragments
    samples = positions if by_position else row_outcomes(positions, present)
    counted = present if by_position else torch.ones_like(samples, dtype=torch.bool)
    ids = group_ids[:, None].expand_as(samples) if by_position else group_ids
    norm = algorithm.reward_norm
    per_domain = norm if isinstance(norm, Mapping) and not set(norm) <= {"mean", "std"} else None
    # Which rows are in each domain, bool [B].
    own = domains if domains is not None else [""] * len(group_ids)
    names = {
        name: torch.tensor([each == name for each in own], dtype=torch.bool, device=rewards.device)
        for name in (sorted(set(domains)) if domains is not None else [""])
    }
    if per_domain is not None and set(names) - set(per_domain):
        raise ValueError(f"reward_norm has no entry for the domains {', '.join(sorted(set(names) - set(per_domain)))}")
    result, scale = samples.clone(), torch.ones_like(samples)
    for name, rows in names.items():
        chosen = _reward_norm_of(
            norm if per_domain is None else cast("str | None", per_domain[name]),
            shift=algorithm.reward_shift,
            scale=algorithm.reward_scale,
        )
        part = counted & (rows[:, None] if by_position else rows)
        result[part], scale[part] = _normalised(samples[part], ids[part], chosen, state.of(name), algorithm)
    if rewards.ndim == 1 or by_position:
        return result
    divided = positions * scale[:, None]
    shift = torch.where(last_true(present), (result - divided.sum(dim=1))[:, None], 0.0)
    return divided + shift


def _normalised(
    values: Tensor, group_ids: Tensor, norm: RewardNormConfig, running: RunningStatistics, algorithm: AlgorithmConfig
) -> tuple[Tensor, Tensor]:
    """[N] samples of one domain by its norm, and what each was multiplied by."""
    scopes = (norm.mean, norm.std)
    if "running" in scopes:
        running.update(values)
    statistics: dict[str, tuple[Tensor, Tensor]] = {
        "running": (values.new_tensor(running.mean), values.new_tensor(running.std))
    }
    for scope, ids in (("group", group_ids), ("batch", torch.zeros_like(group_ids))):
        if scope in scopes:
            group = group_statistics(values, ids, ddof=algorithm.std_ddof)
            statistics[scope] = (group.mean, group.std)
    result, scale = values, torch.ones_like(values)
    if norm.mean is not None:
        result = result - statistics[norm.mean][0]
    if norm.std is not None:
        std = statistics[norm.std][1]
        result = torch.where(std > 0, result / (std + EPS), result)
        scale = torch.where(std > 0, 1 / (std + EPS), scale)
    if "group" in scopes:
        alone = algorithm.singleton_group
        result = settle_singletons(result, values, group_ids, alone)
        scale = settle_singletons(scale, torch.ones_like(values), group_ids, alone)
    return result, scale


def row_outcomes(rewards: Tensor, mask: Tensor) -> Tensor:
    """Compute the reward of the whole row, [B] float64.

    It is an outcome [B] itself, or position rewards [B, T] summed over valid positions.

    >>> row_outcomes(torch.tensor([[1., 2., 9.]]), torch.tensor([[True, True, False]]))
    tensor([3.], dtype=torch.float64)
    """
    rewards = rewards.detach().double()
    return rewards if rewards.ndim == 1 else torch.where(mask, rewards, 0.0).sum(dim=1)


def token_rewards(
    rewards: Tensor,
    mask: Tensor,
    *,
    kl: Tensor | None = None,
    kl_coef: float = 0.0,
    reward_clip: float | None = None,
) -> Tensor:
    """Compute the reward of every position [B, T] float64.

    It is an outcome [B] at the row's last valid position (or ``rewards`` [B, T] as they are), minus ``kl_coef``
    times ``kl`` [B, T], clamped to +- ``reward_clip`` (0 or null: off); 0 under a false mask.

    A non-finite reward, of a row or of a valid token, is a ValueError.

    >>> token_rewards(torch.tensor([1.]), torch.tensor([[True, True, False]]), kl=torch.tensor([[1., 2., 9.]]),
    ...     kl_coef=.1)
    tensor([[-0.1000,  0.8000,  0.0000]], dtype=torch.float64)
    """
    if rewards.ndim == 2:
        positions = torch.where(mask, rewards.detach().double(), 0.0)
    else:
        positions = torch.where(last_true(mask), rewards.detach().double()[:, None], 0.0)
    if not bool((rewards if rewards.ndim == 1 else positions).isfinite().all()):
        bad = (~(rewards if rewards.ndim == 1 else positions.sum(dim=1)).isfinite()).nonzero().flatten().tolist()
        raise ValueError(f"rewards must be finite; these rows have one that is not: {bad[:10]}")
    if kl is not None:
        positions = positions - kl_coef * torch.where(mask, kl.detach().double(), 0.0)
    return clip_rewards(positions, reward_clip)


def overlong_penalty(lengths: Tensor, *, safe_length: int, max_length: int, coef: float = 1.0) -> Tensor:
    """Soft overlong penalty, float32 [B], to be added to the reward (DAPO, arXiv:2503.14476, section 3.4).

    0 up to ``safe_length``, then linear down to ``-coef`` at ``max_length`` and beyond. ``lengths`` [B];
    ``safe_length`` not below ``max_length`` is a ValueError.

    >>> overlong_penalty(torch.tensor([8, 10, 15, 30]), safe_length=10, max_length=20)
    tensor([-0.0000, -0.0000, -0.5000, -1.0000])
    """
    if safe_length >= max_length:
        raise ValueError(f"overlong_penalty: safe_length {safe_length} must be below max_length {max_length}")
    over = (lengths.float() - safe_length) / (max_length - safe_length)
    return -coef * over.clamp(0.0, 1.0)


def with_overlong_penalty(rewards: Tensor, mask: Tensor, option: OverlongPenaltyConfig) -> Tensor:
    """Rewards [B] or [B, T] float32 with the :func:`overlong_penalty` of each row; as they are if ``coef`` is 0.

    A row is as long as it has valid tokens in ``mask`` [B, T]: those that the policy generated, in all turns of a
    conversation together; the environment's messages in between do not count. If a row has several rewards, the
    penalty is added at its last valid token, so that it is part of the outcome and of no earlier turn.

    >>> long = torch.tensor([[True, True, False, True]])
    >>> with_overlong_penalty(torch.zeros(1, 4), long, OverlongPenaltyConfig(safe_length=2, max_length=4, coef=1.0))
    tensor([[ 0.0000,  0.0000,  0.0000, -0.5000]])
    """
    if not option.coef:
        return rewards
    if rewards.ndim == 1:
        return outcomes_with_overlong_penalty(rewards, mask.sum(dim=1), option)
    penalty = _overlong(mask.sum(dim=1), option)
    return rewards.float() + torch.where(last_true(mask), penalty[:, None], 0.0)


def outcomes_with_overlong_penalty(rewards: Tensor, lengths: Tensor, option: OverlongPenaltyConfig) -> Tensor:
    """Outcomes [B] float32 with the penalty of rows that have ``lengths`` [B] valid tokens."""
    return rewards.float() + _overlong(lengths, option) if option.coef else rewards


def _overlong(lengths: Tensor, option: OverlongPenaltyConfig) -> Tensor:
    return overlong_penalty(lengths, safe_length=option.safe_length, max_length=option.max_length, coef=option.coef)
