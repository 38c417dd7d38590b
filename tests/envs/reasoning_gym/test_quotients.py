"""Divisions to practise, a family that reasoning-gym lacks."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any

import pytest
from rlinf_envs.errors import SettingError
from rlinf_envs.reasoning_gym.env import ReasoningGymEnv

TERM = re.compile(r"(\d+)(?: \* (\d+))? ?/ ?(\d+)")


def env(params: dict[str, Any]) -> ReasoningGymEnv:
    return ReasoningGymEnv(
        task="quotients", size=40, params=params, answer_format="####", demonstrations={"small_steps": 1.0}
    )


@pytest.mark.parametrize(
    "params",
    [{}, {"min_terms": 2, "max_terms": 4, "max_divisor": 99, "max_quotient": 9, "max_zeros": 2}, {"max_numerator": 5}],
)
def test_the_demonstration_ends_in_the_sum_of_the_divisions(params: dict[str, Any]) -> None:
    tasks = env(params)
    for prompt, response in tasks.demonstrations(range(40)):
        terms = [Fraction(int(n) * int(m or 1), int(d)) for n, m, d in TERM.findall(prompt)]
        assert all(term.denominator == 1 for term in terms)
        assert response.splitlines()[-1] == f"#### {sum(terms)}"
        assert len(response.splitlines()) == (len(terms) + 2 if len(terms) > 1 else 2)


def test_its_parameters_bound_the_numbers() -> None:
    for prompt, _ in env({"min_divisor": 5, "max_divisor": 7, "max_quotient": 3}).demonstrations(range(40)):
        ((dividend, _, divisor),) = TERM.findall(prompt)
        assert 5 <= int(divisor) <= 7
        assert 2 <= int(dividend) // int(divisor) <= 3


@pytest.mark.parametrize(
    ("params", "reason"),
    [
        ({"min_terms": 3}, "min_terms <= max_terms"),
        ({"max_divisor": 1}, "max_divisor"),
        ({"max_zeros": -1}, "max_zeros"),
    ],
)
def test_empty_ranges_are_refused(params: dict[str, Any], reason: str) -> None:
    with pytest.raises(SettingError, match=reason):
        env(params)


def test_answers_are_scored_as_numbers() -> None:
    tasks = ReasoningGymEnv(num_envs=2, task="quotients", size=40, answer_format="####")
    (_, (_, answer)) = tasks.demonstrations([0, 0])
    tasks.reset(options={"task_ids": [0, 0]})
    infos = tasks.step([f"{answer}.0", "#### 0"])[-1]
    assert infos["verdict"].tolist() == ["correct", "wrong"]
