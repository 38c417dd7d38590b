"""Equations in written steps: right and wrong ones, and what has no verdict."""

from __future__ import annotations

import re

import pytest
from rlinf_envs.equations import equations
from rlinf_envs.reasoning_gym.env import ReasoningGymEnv
from rlinf_envs.steps import split_steps


@pytest.mark.parametrize(
    ("step", "verdicts"),
    [
        ("12 * 7 = 84", [True]),
        ("so 12 * 7 = 83 apples", [False]),
        ("1 + 1 = 2 = 3", [True, False]),
        ("9 - 3 = 6 - 2 = 4", [False, True]),
        ("3 + 4 = 7 + 1", [False]),
        ("7 = 3 + 5", [False]),
        ("x = 2 + 3 = 5", [True]),
        ("He has 3 + 4 = 7.", [True]),
        ("so 3 + 4 = 7, 5 + 6 = 12", [True, False]),
        ("-3 + 4 = 1", [True]),
        ("he is at -3 + 4 = 2", [False]),
        ("2 + 3 == 6", [False]),
        ("1,000 + 2,500 = 3,500", [True]),
        ("(3 + 4) * 2 = 15", [False]),
        ("2(3 + 4) = 14", [True]),
        ("3 x 4 x 5 = 61", [False]),
        ("12 ÷ 4 = 4", [False]),
        ("10÷1/2=20 minutes", [True]),
        ("5**2 = 25", [True]),
        ("5 ** 2 = 26", [False]),
        ("3² + 4² = 25", [True]),
    ],
)
def test_arithmetic(step: str, verdicts: list[bool]) -> None:
    assert equations(step) == verdicts


@pytest.mark.parametrize(
    ("step", "verdicts"),
    [
        ("$2 + $3 = 5", [True]),
        ("$2 + $3 = $6", [False]),
        ("€268 - €173 = €95", [True]),
        ("29 roses x €2 = 29*2 = €58", [True, True]),
        ("29 roses x €2 = €57", [False]),
        ("so 111 students - 60 girls = 71 boys", [False]),
        ("4 apples + 5 apples = 9 apples = 10 apples", [True, False]),
        ("60 km/h * 2 = 120", [True]),
        ("3 lbs + 4 lbs = 8 lbs", [False]),
        ("Speed: 60 / 2 = 31 mph.", [False]),
        ("I eat 3 + 4 = 7 a day", [True]),
        ("a total of 3 + 4 = 8", [False]),
        ("John's community center pays $440 * 1/2 = $230", [False]),
    ],
)
def test_units_and_money(step: str, verdicts: list[bool]) -> None:
    assert equations(step) == verdicts


@pytest.mark.parametrize(
    ("step", "verdicts"),
    [
        ("50 * 30% = 15", [True]),
        ("100% - 20% = 80%", [True]),
        ("5 / 10 = 50.0%", [True]),
        ("10/3 = 3.33", [True]),
        ("10/3 = 3.34", [False]),
        ("0.25 * 3 = 0.8", [False]),  # it has a short decimal form: nothing to round
        ("12 x 0.6666666666666666 = 8.0", [True]),
        ("17 * 0.5 = 8", [False]),
        ("1/2 + 1/3 = 5/6 = 0.83", [True, True]),
    ],
)
def test_percentages_and_rounding(step: str, verdicts: list[bool]) -> None:
    assert equations(step) == verdicts


@pytest.mark.parametrize(
    ("step", "verdicts"),
    [
        (r"3 \times 4 = 12", [True]),
        (r"\(12 \div 4 = 4\)", [False]),
        (r"\frac{1}{2} \cdot 8 = 5", [False]),
        (r"1/2+1/3=\dfrac{5}{7}", [False]),
        (r"3\frac{1}{2} = 3.5", [True]),
        (r"\text{Total} = 3 + 4 = 8", [False]),
        ("$3 + 4 = 8$", [False]),
        ("3^{2} = 9", [True]),
        ("**3 + 4 = 7**", [True]),
        ("3 + 4 = **8**", [False]),
        ("- 3 + 4 = 7", [True]),
        ("2. 3 + 4 = 7", [True]),
        ("(1) 3 + 4 = 8", [False]),
    ],
)
def test_latex_and_markdown(step: str, verdicts: list[bool]) -> None:
    assert equations(step) == verdicts


@pytest.mark.parametrize(
    "step",
    ["no sums here", "x = 3", "3 + 4 = x", "2x+140=198", "2 x + 3 y = 12", "x - 3 + 4 = 2", "x_1 + 2 = 5", "f(3) = 9",
     "sqrt(16) + 2 = 6", r"\sqrt{16} = 4", "5! = 120", "C(5,2) = 10", "17 mod 5 = 2", "17 % 5 = 2", "1010_2 = 10",
     "17 / 5 = 3 remainder 2", "17 / 5 = 3 R 2", "2:30 + 1:15 = 3:45", "3 >= 2 = 2", "2/3 ≈ 0.67", "30% of 50 = 15",
     "half of 40 = 20", "twice 3 + 4 = 10", "5 dozen = 60", "3 hours - 20 minutes = 160 minutes", "3,5 + 1 = 4,5",
     "20 minutes * 3 = 1 hour", "$5 - 50 cents = $4.50"],
)  # fmt: skip
def test_what_has_several_readings_has_no_verdict(step: str) -> None:
    assert equations(step) == []


def test_worked_solutions_hold_but_for_what_they_cut_off() -> None:
    """The references of gsm_symbolic cut decimals off persons and pieces ("17*0.5=8"): nothing else is called wrong."""
    env = ReasoningGymEnv(1, task="gsm_symbolic", size=300, demonstrations={"steps": 1.0})
    steps = [step.text for _, solution in env.demonstrations(range(300)) for step in split_steps(str(solution))]
    verdicts = [equations(step) for step in steps]
    wrong = [step for step, results in zip(steps, verdicts, strict=True) if not all(results)]
    assert sum(map(bool, verdicts)) > 700
    assert len(wrong) < 10
    assert all(re.search(r"0\.5=\d|/ 1\.\d = \d|0\.82\*60 = 49|15÷2/5=37", step) for step in wrong), wrong
