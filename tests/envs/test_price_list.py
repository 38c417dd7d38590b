"""A question that only a tool can answer, and who demonstrates asking it."""

from __future__ import annotations

import pytest
from rlinf_envs.errors import SettingError
from rlinf_envs.games.price_list import PriceList


def demonstrated(env: PriceList, seed: int) -> tuple[float, int]:
    """(reward, responses) of the environment's own expert."""
    observation, _ = env.reset(seed=seed)
    total, turns, ended = 0.0, 0, False
    while not ended:
        observation, reward, ended, _, _ = env.step(env.demonstrate(observation))
        total, turns = total + reward, turns + 1
    return total, turns


def test_who_asks_is_right_and_who_is_unsure_says_so() -> None:
    assert {demonstrated(PriceList(things=3), seed) for seed in range(20)} == {(1.0, 2)}
    outcomes = [demonstrated(PriceList(things=3, unsure=0.75), seed) for seed in range(200)]
    assert set(outcomes) == {(1.0, 2), (0.0, 1)}
    assert 30 <= outcomes.count((1.0, 2)) <= 75
    with pytest.raises(SettingError, match="unsure"):
        PriceList(unsure=1.0)
