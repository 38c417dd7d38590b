"""A question for a tool."""

from __future__ import annotations

import gymnasium
import pytest
from rlinf_envs.errors import SettingError
from rlinf_envs.games.price_list import PriceList
from rlinf_envs.tools.calls import written


def test_only_the_tool_has_the_price() -> None:
    env = gymnasium.make("rlinf_envs:rlinf/PriceList-v0", things=3).unwrapped
    for seed in range(5):
        observation, _ = env.reset(seed=seed)
        call = env.demonstrate(observation)  # type: ignore[attr-defined]
        answer, reward, ended, _, info = env.step(call)
        assert (reward, ended, info["role"]) == (0.0, False, "tool")
        assert 10 <= int(answer) < 100
        assert env.step(env.demonstrate(answer))[1:3] == (1.0, True)  # type: ignore[attr-defined]
    env.reset(seed=0)
    assert env.step(written("price", {"thing": "gold"}))[0] == "unknown"
    assert env.step("no idea")[1:3] == (0.0, True)


def test_more_things_than_there_are_are_refused() -> None:
    with pytest.raises(SettingError, match="between 1 and 16"):
        gymnasium.make("rlinf_envs:rlinf/PriceList-v0", things=99)


def demonstrated(env: PriceList, seed: int) -> tuple[float, int]:
    """(reward, responses) of the environment's own expert."""
    observation, _ = env.reset(seed=seed)
    total, turns, ended = 0.0, 0, False
    while not ended:
        observation, reward, ended, _, _ = env.step(env.demonstrate(observation))
        total, turns = total + reward, turns + 1
    return total, turns


def test_calls_are_right_and_unsure_demonstrations_give_no_price() -> None:
    assert {demonstrated(PriceList(things=3), seed) for seed in range(20)} == {(1.0, 2)}
    outcomes = [demonstrated(PriceList(things=3, unsure=0.75), seed) for seed in range(200)]
    assert set(outcomes) == {(1.0, 2), (0.0, 1)}
    assert 30 <= outcomes.count((1.0, 2)) <= 75
    with pytest.raises(SettingError, match="unsure"):
        PriceList(unsure=1.0)
