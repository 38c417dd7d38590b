"""Outcome rewards before the estimator: normalisation over the group, the batch or the whole run, clipping, shaping."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from rlinf.algorithms import catalog
from rlinf.algorithms.running import RewardState, RunningStatistics
from rlinf.algorithms.scan import next_true
from rlinf.algorithms.statistics import (
    EPS,
    ONE_RANK,
    Ranks,
    SingletonGroup,
    gather_names,
    group_statistics,
    settle_singletons,
)

SCOPES = ("group", "batch", "running")


@dataclass(frozen=True)
class RewardNorm:
    """Where the mean that is subtracted and the deviation that divides come from; None leaves that part out."""

    mean: str | None = None
    std: str | None = None

    def __post_init__(self) -> None:
        for part, scope in (("mean", self.mean), ("std", self.std)):
            if scope is not None and scope not in SCOPES:
                raise ValueError(f"reward_norm.{part} must be null or one of {', '.join(SCOPES)}, got {scope!r}")

    @classmethod
    def of(cls, option: str | Mapping[str, Any] | None, *, shift: bool = False, scale: bool = False) -> RewardNorm:
        """From ``{mean, std}``, or a scope with ``reward_shift`` (mean only; it wins) or ``reward_scale`` (std only).

        >>> RewardNorm.of("group", scale=True), RewardNorm.of({"mean": "group", "std": "batch"})
        (RewardNorm(mean=None, std='group'), RewardNorm(mean='group', std='batch'))
        """
        if isinstance(option, Mapping):
            if shift or scale:
                raise ValueError("reward_shift and reward_scale go with a plain reward_norm, not with {mean, std}")
            unknown = set(option) - {"mean", "std"}
            if unknown:
                raise TypeError(f"reward_norm does not know {', '.join(sorted(unknown))}; it reads: mean, std")
            return cls(option.get("mean"), option.get("std"))
        return cls(None if scale and not shift else option, None if shift else option)


def process_rewards(
    rewards: Tensor,
    *,
    group_ids: Tensor,
    mask: Tensor | None = None,
    state: RewardState | None = None,
    domains: Sequence[str] | None = None,
    ranks: Ranks = ONE_RANK,
    **options: Any,
) -> Tensor:
    """Normalised, then clipped rewards, float32, in the shape they came in.

    ``rewards`` [B], or [B, T] with its ``mask`` (then every true slot is a sample, and false ones become 0);
    ``group_ids`` [B]. ``(r - mean) / (std + 1e-6)``; a deviation of 0 does not divide. ``state`` keeps the
    ``running`` statistics, which take in the batch before they are used; without one they are those of this batch.
    ``domains`` (B names) keeps the statistics of the task families of a mixed batch apart; ``reward_norm`` may then
    be a mapping from domain to norm.

    ``options``: reward_norm, reward_shift, reward_scale, reward_clip (0 or null: off), std_ddof (1), singleton_group
    (error); any other is a TypeError that lists them.

    >>> process_rewards(torch.tensor([1., 3., 9.]), group_ids=torch.tensor([0, 0, 0]), reward_norm="group",
    ...     reward_shift=True, reward_clip=3.0)
    tensor([-3.0000, -1.3333,  3.0000])
    """
    catalog.refuse_unknown("process_rewards", options, catalog.REWARD_OPTIONS)
    state = RewardState() if state is None else state
    present = torch.ones_like(rewards, dtype=torch.bool) if rewards.ndim == 1 or mask is None else mask
    ids = group_ids if rewards.ndim == 1 else group_ids[:, None].expand_as(rewards)
    result = torch.where(present, rewards.double(), 0.0)
    norm = options.get("reward_norm")
    per_domain = norm if isinstance(norm, Mapping) and not set(norm) <= {"mean", "std"} else None
    names = _rows_of_domains(domains, len(group_ids), rewards.device, ranks)
    if per_domain is not None and set(names) - set(per_domain):
        raise ValueError(f"reward_norm has no entry for the domains {', '.join(sorted(set(names) - set(per_domain)))}")
    for name, rows in names.items():
        chosen = RewardNorm.of(
            norm if per_domain is None else per_domain[name],
            shift=options.get("reward_shift", False),
            scale=options.get("reward_scale", False),
        )
        part = present & (rows if rewards.ndim == 1 else rows[:, None])
        result[part] = _normalised(
            result[part],
            ids[part],
            chosen,
            running=state.of(name),
            std_ddof=options.get("std_ddof", 1),
            singleton_group=options.get("singleton_group", "error"),
            ranks=ranks,
        )
    clip = options.get("reward_clip")
    return (result.clamp(-clip, clip) if clip else result).float()


def _rows_of_domains(domains: Sequence[str] | None, rows: int, device: torch.device, ranks: Ranks) -> dict[str, Tensor]:
    """For every domain of any rank, in one order everywhere, which rows of this rank are in it (bool [B])."""
    if domains is None:
        return {"": torch.ones(rows, dtype=torch.bool, device=device)}
    everywhere = gather_names(domains, ranks=ranks)
    return {
        name: torch.tensor([own == name for own in domains], dtype=torch.bool, device=device) for name in everywhere
    }


def _normalised(
    values: Tensor,
    group_ids: Tensor,
    norm: RewardNorm,
    *,
    running: RunningStatistics,
    std_ddof: int,
    singleton_group: SingletonGroup,
    ranks: Ranks,
) -> Tensor:
    """[N] samples of one domain by its norm."""
    scopes = (norm.mean, norm.std)
    if "running" in scopes:
        running.update(values, ranks=ranks)
    statistics: dict[str, tuple[Tensor, Tensor]] = {
        "running": (values.new_tensor(running.mean), values.new_tensor(running.std))
    }
    for scope, ids in (("group", group_ids), ("batch", torch.zeros_like(group_ids))):
        if scope in scopes:
            found = group_statistics(values, ids, ddof=std_ddof, ranks=ranks)
            statistics[scope] = (found.mean, found.std)
    result = values
    if norm.mean is not None:
        result = result - statistics[norm.mean][0]
    if norm.std is not None:
        std = statistics[norm.std][1]
        result = torch.where(std > 0, result / (std + EPS), result)
    if "group" in scopes:
        result = settle_singletons(result, values, group_ids, singleton_group, ranks=ranks)
    return result


def row_outcomes(rewards: Tensor, mask: Tensor) -> Tensor:
    """The reward of the whole row, [B] float64: an outcome [B] itself, slot rewards [B, T] summed over true slots.

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
    """The reward of every slot [B, T] float64: an outcome [B] at the row's last true slot (or ``rewards`` [B, T] as
    they are), minus ``kl_coef`` times ``kl`` [B, T], clamped to +- ``reward_clip`` (0 or null: off); 0 under a false
    mask.

    A reward that is no number, in a row or a true slot, is a ValueError.

    >>> token_rewards(torch.tensor([1.]), torch.tensor([[True, True, False]]), kl=torch.tensor([[1., 2., 9.]]),
    ...     kl_coef=.1)
    tensor([[-0.1000,  0.8000,  0.0000]], dtype=torch.float64)
    """
    if rewards.ndim == 2:
        slots = torch.where(mask, rewards.detach().double(), 0.0)
    else:
        last = mask & (next_true(mask) == mask.shape[1])
        slots = torch.where(last, rewards.detach().double()[:, None], 0.0)
    if not bool((rewards if rewards.ndim == 1 else slots).isfinite().all()):
        bad = (~(rewards if rewards.ndim == 1 else slots.sum(dim=1)).isfinite()).nonzero().flatten().tolist()
        raise ValueError(f"rewards must be finite; these rows have one that is not: {bad[:10]}")
    if kl is not None:
        slots = slots - kl_coef * torch.where(mask, kl.detach().double(), 0.0)
    return slots.clamp(-reward_clip, reward_clip) if reward_clip else slots


def overlong_penalty(lengths: Tensor, *, safe_length: int, max_length: int, coef: float = 1.0) -> Tensor:
    """What a long response is fined, float32 [B], to be added to the reward (DAPO, arXiv:2503.14476, section 3.4).

    0 up to ``safe_length``, then linear down to ``-coef`` at ``max_length`` and beyond. ``lengths`` [B];
    ``safe_length`` not below ``max_length`` is a ValueError.

    >>> overlong_penalty(torch.tensor([8, 10, 15, 30]), safe_length=10, max_length=20)
    tensor([-0.0000, -0.0000, -0.5000, -1.0000])
    """
    if safe_length >= max_length:
        raise ValueError(f"overlong_penalty: safe_length {safe_length} must be below max_length {max_length}")
    over = (lengths.float() - safe_length) / (max_length - safe_length)
    return -coef * over.clamp(0.0, 1.0)
