"""The arithmetic of other problems to practise, without their words."""

from __future__ import annotations

from typing import Any

import pytest
from rlinf_envs.equations import equations
from rlinf_envs.errors import SettingError
from rlinf_envs.reasoning_gym.env import ReasoningGymEnv
from rlinf_envs.reasoning_gym.small_steps import Written, calculations


def env(**params: Any) -> ReasoningGymEnv:
    return ReasoningGymEnv(
        task="calculations", size=20, params=params, answer_format="####", demonstrations={"small_steps": 1.0}
    )


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("He then has 45 pens - 19 pens = 26 pens.", [Written("45-19", "26", 2)]),
        ("He pays 40 / 5 = $8, and 2 * 8 = $16 in all.", [Written("40/5", "8", 1), Written("2*8", "16", 1)]),
        ("After a discount $630 * 40% = $252", [Written("630*0.4", "252", 3)]),
        ("He needs 27 / 18 = 1 tray", []),
        ("Thus T = 12", []),
    ],
)
def test_calculations_of_a_line_are_those_with_right_results(line: str, found: list[Written]) -> None:
    assert calculations(line) == found


def test_every_calculation_is_solved_in_a_line_of_its_own() -> None:
    for prompt, response in env(min_terms=3, max_terms=5).demonstrations(range(20)):
        requested = prompt.partition("Calculate ")[2].partition(". Give only")[0].split("; ")
        *lines, last = response.splitlines()
        assert 3 <= len(requested) <= 5
        assert [line.partition(" = ")[0] for line in lines] == requested
        assert all(all(equations(line)) and equations(line) for line in lines)
        assert last == f"#### {lines[-1].rpartition(' = ')[2]}"


def test_calculations_of_few_steps_are_left_out() -> None:
    for _, response in env(min_steps=4).demonstrations(range(20)):
        assert all(line.count(" = ") >= 4 for line in response.splitlines()[:-1])


def test_each_task_has_calculations_of_its_own() -> None:
    prompts = [prompt for prompt, _ in env().demonstrations(range(20))]
    assert len(set(prompts)) == 20
    assert prompts == [prompt for prompt, _ in env().demonstrations(range(20))]


@pytest.mark.parametrize(
    ("params", "reason"),
    [
        ({"min_terms": 9}, "min_terms <= max_terms"),
        ({"min_steps": 0}, "min_steps"),
        ({"family": "gsm_symbolics"}, "gsm_symbolics"),
        ({"family": "chain_sum"}, "'chain_sum' has no worked solutions"),
    ],
)
def test_wrong_parameters_are_refused(params: dict[str, Any], reason: str) -> None:
    with pytest.raises(SettingError, match=reason):
        env(**params)


def test_answers_are_scored_as_numbers() -> None:
    tasks = ReasoningGymEnv(num_envs=2, task="calculations", size=20, answer_format="####")
    ((_, answer),) = tasks.demonstrations([0])
    tasks.reset(options={"task_ids": [0, 0]})
    infos = tasks.step([f"{answer}.0", "#### x"])[-1]
    assert infos["verdict"].tolist()[0] == "correct"
