"""Solutions as conversations with the calculator."""

from __future__ import annotations

import re

import pytest
from rlinf_envs.errors import SettingError
from rlinf_envs.reasoning_gym.env import ReasoningGymEnv
from rlinf_envs.reasoning_gym.with_calculator import with_calculator

from rlinf.rollouts.text.demonstrated import Demonstration, Observation

GSM = {"task": "gsm_symbolic", "size": 60, "seed": 3, "answer_format": "####"}


@pytest.mark.parametrize(
    ("line", "turns"),
    [
        ("15*5=75 ccs", ["<calc>15*5</calc>", "<result>75</result>", "75 ccs"]),
        ("It is $4,000 x 8/100 = $320.", ["It is <calc>4000*8/100</calc>", "<result>320</result>", "$320."]),
        ("6 days * 2 = 12 days", ["6 days * 2 = <calc>6*2</calc>", "<result>12</result>", "12 days"]),
        ("$900 * 15% = $135", ["$900 * 15% = <calc>900*0.15</calc>", "<result>135</result>", "$135"]),
        ("It is 2(62+18) = 160", ["It is <calc>2*(62+18)</calc>", "<result>160</result>", "160"]),
        ("2 + 3 = 5 = 5", ["<calc>2+3</calc>", "<result>5</result>", "5 = 5"]),
        ("1/3 = 0.33, he wrote", ["1/3 = 0.33, he wrote"]),
        ("x = 4", ["x = 4"]),
    ],
)
def test_a_calculation_becomes_a_call_and_its_result(line: str, turns: list[str]) -> None:
    assert with_calculator([line]) == turns


def test_two_calculations_of_a_line() -> None:
    turns = with_calculator(["12+8 = 20 = 4*5 = 20", "#### 20"])
    assert turns[:3] == ["<calc>12+8</calc>", "<result>20</result>", "20 = <calc>4*5</calc>"]
    assert turns[3:] == ["<result>20</result>", "20\n#### 20"]


def test_demonstrations_play_out_as_written() -> None:
    """The calculator gives the results that they show, and each ends with the right answer."""
    env = ReasoningGymEnv(60, tool="calculator", max_turns=12, demonstrations={"calculator": 1.0}, **GSM)
    plain = ReasoningGymEnv(60, demonstrations={"worked": 1.0}, **GSM)
    shown = env.demonstrations(range(60))
    assert sum(len(turns) for _, turns in shown) > 4 * 60
    env.reset(options={"task_ids": list(range(60))})
    rewards = [0.0] * 60
    for turn in range(0, max(len(turns) for _, turns in shown), 2):
        observations, given, ended, _, _ = env.step([turns[turn] if turn < len(turns) else None for _, turns in shown])
        for row, (_, turns) in enumerate(shown):
            if turn < len(turns):
                rewards[row] = float(given[row])
                assert observations[row] == (turns[turn + 1] if turn + 1 < len(turns) else "")
                assert ended[row] == (turn + 1 == len(turns))
    assert rewards == [1.0] * 60
    for (_, turns), (_, worked) in zip(shown, plain.demonstrations(range(60)), strict=True):
        # Numbers of the last line are those of the solution as the family wrote it.
        assert re.findall(r"[\d.]+", turns[-1].splitlines()[-1]) == re.findall(r"[\d.]+", worked.splitlines()[-1])


def test_they_are_conversations_to_the_warm_start() -> None:
    given = ("Q", ["<calc>1+2</calc>", "<result>3</result>", "#### 3"])
    assert Demonstration.of(given) == Demonstration(
        "Q", ("<calc>1+2</calc>", "#### 3"), (Observation("<result>3</result>"),)
    )


def test_a_calculator_that_is_not_there_is_not_shown() -> None:
    with pytest.raises(SettingError, match="tool: calculator"):
        ReasoningGymEnv(1, demonstrations={"calculator": 1.0}, **GSM)
    with pytest.raises(SettingError, match="calculator"):
        ReasoningGymEnv(1, tool="abacus", **GSM)
