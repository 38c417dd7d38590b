"""The terms of the rewards of conversations, as the columns of a batch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch

from rlinf.base.errors import RunFailed
from rlinf.rollouts.text.conversation import Row

_WEIGHT = "reward_weight/"


def reward_terms(rows: Sequence[Row]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the values and the weights of each row's reward terms, float32 [B, K].

    K is the largest number of terms that an environment has. The rows of a group are of one environment, and have
    its terms in the order of their names; those of weight 0 are left out. Behind the last one, and in lost rows,
    values are NaN and weights 0. A value that is not finite becomes NaN; a conversation that ended before its
    environment graded it earned 0 by each term.

    Raises:
        RunFailed: the weighted terms of a row are not its reward.
    """
    of_groups: dict[int, Mapping[str, float]] = {}
    for row in rows:
        of_groups[row.group] = of_groups.get(row.group) or _weights(row)
    most = max(1, *(len(weights) for weights in of_groups.values()))
    values, counts = torch.full((len(rows), most), math.nan), torch.zeros(len(rows), most)
    for index, row in enumerate(rows):
        weights = of_groups[row.group]
        if row.lost:
            continue
        earned = [sum(turn.reward_terms.get(name, 0.0) for turn in row.turns) for name in weights]
        _require_sum(row, weights, earned)
        values[index, : len(weights)] = torch.tensor([value if math.isfinite(value) else math.nan for value in earned])
        counts[index, : len(weights)] = torch.tensor(list(weights.values()))
    return values, counts


def _weights(row: Row) -> dict[str, float]:
    """Return the weights of the terms that a row's environment reported, by name."""
    reported = {name.removeprefix(_WEIGHT): float(row.facts[name]) for name in row.facts if name.startswith(_WEIGHT)}
    return {name: reported[name] for name in sorted(reported) if reported[name] != 0}


def _require_sum(row: Row, weights: Mapping[str, float], earned: Sequence[float]) -> None:
    """Raise RunFailed if a reward has a part that is no term: nothing would be learned from it."""
    parts = [weight * value for weight, value in zip(weights.values(), earned, strict=True)]
    if not row.tokens or not all(map(math.isfinite, parts)):
        return
    if abs(sum(parts) - row.total_reward) > 1e-3 * max(1.0, sum(map(abs, parts))):
        raise RunFailed(
            f"adv_type: gdpo learns from the terms of a reward, and those of task {row.task_id} ({row.domain}) add up "
            f"to {sum(parts):g}, its reward being {row.total_reward:g}. The environment must report reward/NAME and "
            "reward_weight/NAME of every term in the infos of step(). Otherwise choose adv_type: grpo."
        )
