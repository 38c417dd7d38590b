"""The number that is guessed."""

from __future__ import annotations

import gymnasium
import pytest


@pytest.mark.parametrize("numbers", [1, 2, 7, 16])
def test_halving_finds_every_number_in_time(numbers: int) -> None:
    env = gymnasium.make("rlinf_envs:rlinf/GuessNumber-v0", numbers=numbers).unwrapped
    for seed in range(4 * numbers):
        observation, _ = env.reset(seed=seed)
        for _ in range(env.max_turns):  # type: ignore[attr-defined]
            observation, reward, ended, _, info = env.step(env.demonstrate(observation))  # type: ignore[attr-defined]
            assert reward == float(ended)
            if ended:
                break
        assert info == {"success": True, "extracted": str(env._number)}  # type: ignore[attr-defined]


def test_careless_demonstrations_are_drawn_with_the_task() -> None:
    env = gymnasium.make("rlinf_envs:rlinf/GuessNumber-v0", numbers=100, careless=1.0).unwrapped
    shown = []
    for _ in range(2):
        env.reset(seed=3)
        shown.append(env.demonstrate(""))  # type: ignore[attr-defined]
    assert shown[0] == shown[1] != "50"


def test_a_response_without_a_number_gets_a_reminder() -> None:
    env = gymnasium.make("rlinf_envs:rlinf/GuessNumber-v0", numbers=4)
    env.reset(seed=0)
    assert env.step("no idea")[:3] == ("Say a number.", 0.0, False)
    assert env.step("100")[0] == "lower"
    assert env.step("-5")[0] == "higher"
