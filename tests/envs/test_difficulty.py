"""What makes a task hard is measured on its solution or question, or read from its row."""

import pytest
from rlinf_envs.difficulty import difficulty
from rlinf_envs.errors import SettingError
from rlinf_envs.reasoning_gym.env import ReasoningGymEnv
from rlinf_envs.tasks import Task

TASK = Task("What is 2 + 3?", "5", "sums", row={"level": "Level 3", "metadata": {"difficulty": {"terms": [2, 4]}}})


def test_lengths_and_columns() -> None:
    assert difficulty(TASK, "question_length", None) == 14
    assert difficulty(TASK, "solution_lines", "2 + 3 = 5\n\n#### 5") == 2
    assert difficulty(TASK, "level", None) == 3
    assert difficulty(TASK, "terms", None) == 4


@pytest.mark.parametrize(("by", "words"), [("levle", "did you mean 'level'"), ("solution_lines", "no worked solution")])
def test_what_is_not_there_is_named(by: str, words: str) -> None:
    with pytest.raises(SettingError, match=words):
        difficulty(TASK, by, None)


def test_families_of_reasoning_gym_measure_their_own_solutions() -> None:
    params = {"min_terms": 2, "max_terms": 4, "min_digits": 1, "max_digits": 1}
    env = ReasoningGymEnv(1, task="chain_sum", size=20, params=params)
    lines = env.difficulties(range(20), "solution_lines")
    assert set(lines) == {1.0, 2.0, 3.0}  # one equation for each term after the first
    assert env.difficulties(range(20), "num_terms") == [line + 1 for line in lines]
