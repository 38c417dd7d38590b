"""Turns as single positions: the same numbers as token by token, and only where tokens of a turn do not differ."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from rlinf.algorithms.advantages.columns import AdvantageColumns, to_segments
from rlinf.algorithms.advantages.estimate import Advantages, estimate
from rlinf.schema import AlgorithmConfig

ROWS, POSITIONS = 12, 40


def conversations(seed: int, *, outcomes: bool = False) -> dict[str, Tensor]:
    """Turns of 1 to 5 tokens, each followed by up to 3 of the environment; row 4 has none, row 5 is filtered out."""
    random = torch.Generator().manual_seed(seed)

    def below(limit: int) -> int:
        return int(torch.randint(limit, (), generator=random))

    acted = torch.zeros(ROWS, POSITIONS, dtype=torch.bool)
    anchors = torch.full((ROWS, POSITIONS), -1)
    rewards = torch.zeros(ROWS, POSITIONS)
    terminated = acted.clone()
    for row in range(ROWS):
        position = 0
        for _ in range(0 if row == 4 else 1 + below(5)):
            anchors[row, position] = below(3)
            end = position + 1 + below(5)
            acted[row, position:end] = True
            rewards[row, end - 1] = below(5) / 4
            last, position = end - 1, end + below(4)
        if row != 4:
            terminated[row, last] = row % 2 == 0
    mask = acted & (torch.arange(ROWS) != 5)[:, None]
    found = {"acted": acted, "mask": mask, "anchor_ids": anchors, "rewards": rewards, "terminated": terminated}
    return {**found, "rewards": torch.arange(ROWS) % 3 / 2.0} if outcomes else found


def token_by_token(algorithm: AlgorithmConfig, x: AdvantageColumns, monkeypatch: pytest.MonkeyPatch) -> Advantages:
    with monkeypatch.context() as patch:
        patch.setattr("rlinf.algorithms.advantages.estimate.to_segments", lambda *_: None)
        return estimate(algorithm, x)


@pytest.mark.parametrize("outcomes", [False, True])
@pytest.mark.parametrize(
    "options", [{"gamma": 1.0}, {"gamma": 0.9}, {"normalize_by_std": False, "advantage_clip": 0.5}]
)
@pytest.mark.parametrize("adv_type", ["gigpo", "grpo_turn"])
def test_turns_as_positions_give_what_their_tokens_give(
    adv_type: str, options: dict[str, Any], outcomes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    algorithm = AlgorithmConfig(adv_type=adv_type, reward_clip=0.8, **options)
    for seed in range(5):
        x = AdvantageColumns(**conversations(seed, outcomes=outcomes), group_ids=torch.arange(ROWS) % 3)
        few = to_segments(algorithm, x)
        assert few is not None
        assert few.starts is not None
        assert int(few.tokens.sum()) == int(x.mask.sum())
        fast, slow = estimate(algorithm, x), token_by_token(algorithm, x, monkeypatch)
        assert fast.advantages.equal(slow.advantages)
        assert fast.returns.equal(slow.returns)


@pytest.mark.parametrize("case", ["reward", "end", "before", "kl", "whitened rewards"])
def test_turns_whose_tokens_differ_stay_as_they_are(case: str) -> None:
    x = conversations(0)
    options: dict[str, Any] = {}
    x["acted"][0, :3] = x["mask"][0, :3] = True
    x["anchor_ids"][0, :3] = torch.tensor([1, -1, -1])
    if case == "reward":
        x["rewards"][0, 0] = 0.5
    elif case == "end":
        x["terminated"][0, 1] = True
    elif case == "before":
        x["anchor_ids"][0, 0] = -1
    elif case == "kl":
        options = {"add_token_level_kl": True, "kl_coef": 0.1}
    else:
        options = {"whiten_rewards": True}
    columns = AdvantageColumns(**x, group_ids=torch.arange(ROWS) % 3)
    algorithm = AlgorithmConfig(adv_type="gigpo", **options)
    assert to_segments(algorithm, columns) is None
