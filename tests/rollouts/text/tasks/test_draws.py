"""Shares of a mixture are exact, what is passed over is counted for each environment, and resting tasks stay away."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest

from rlinf.base.errors import UserError
from rlinf.rollouts.text.conversation import Row
from rlinf.rollouts.text.members import TextMixtureEnv, evaluation_tasks, metrics_by_member
from rlinf.rollouts.text.tasks.draws import TaskDraws
from rlinf.rollouts.text.tasks.mixture_schedule import MixtureSchedule
from rlinf.rollouts.text.tasks.order import TaskOrder
from rlinf.rollouts.text.tasks.pool import TaskPool
from rlinf.schema.env import PoolConfig


def everything(tasks: Sequence[int]) -> list[bool]:
    return [True] * len(tasks)


def row(task: int, sample: int, verdict: str) -> Row:
    return Row(task, sample, task, "", "", "", (), facts={"verdict": verdict}, finish_reason="stop")


@pytest.mark.parametrize("weights", [[2, 1, 1], [1, 1], [0.5, 0.3, 0.2], [7, 2, 1], [0.9, 0.1], [3, 0, 1]])
def test_any_hundred_groups_have_the_shares(weights: list[float]) -> None:
    shares = MixtureSchedule(weights)
    members = [shares.member(group) for group in range(1000)]
    for start in range(900):
        counts = Counter(members[start : start + 100])
        for number, weight in enumerate(weights):
            assert abs(counts[number] - 100 * weight / sum(weights)) <= 1


def test_after_any_number_of_groups_a_share_is_less_than_one_off() -> None:
    generator = np.random.default_rng(0)
    for _ in range(30):
        weights = generator.integers(1, 50, size=int(generator.integers(2, 7))).tolist()
        shares = MixtureSchedule(weights)
        for group in range(1, 400):
            for number, weight in enumerate(weights):
                assert abs(shares.before(number, group) - group * weight / sum(weights)) < 1


def test_one_environment_is_visited_in_its_order() -> None:
    draws, order = (
        TaskDraws({"": 5}, [1.0], seed=3, shuffle=True, max_prompt_length=64),
        TaskOrder(5, seed=3, shuffle=True),
    )
    assert [draws.draw(first, 4, everything)[0] for first in (0, 4, 8)] == [order.tasks(p, 4) for p in (0, 4, 8)]
    assert draws.draw(4, 4, everything, round=2, keep=False)[0] == order.tasks(4, 4, round=2)


def test_what_does_not_fit_costs_no_other_environment_its_share() -> None:
    def fits(tasks: Sequence[int]) -> list[bool]:
        return [task % 2 == 0 or task // 2 % 3 == 0 for task in tasks]  # two thirds of environment 1 are too long

    draws = TaskDraws({"a": 40, "b": 30}, [1, 3], seed=0, shuffle=True, max_prompt_length=64)
    drawn = [draws.draw(first, 8, fits) for first in range(0, 400, 8)]
    assert Counter(task % 2 for tasks, _ in drawn for task in tasks) == {0: 100, 1: 300}
    assert all(fits([task]) == [True] for tasks, _ in drawn for task in tasks)
    assert draws.passed == sum(long for _, long in drawn) >= 590
    again = TaskDraws({"a": 40, "b": 30}, [1, 3], seed=0, shuffle=True, max_prompt_length=64)
    again.draw(0, 8, fits)
    resumed = TaskDraws({"a": 40, "b": 30}, [1, 3], seed=0, shuffle=True, max_prompt_length=64)
    resumed.load_state_dict(again.state_dict())
    assert [resumed.draw(first, 8, fits) for first in (8, 16)] == drawn[1:3]
    with pytest.raises(UserError, match="max_prompt_length 64: every prompt of b is longer"):
        draws.draw(400, 8, lambda tasks: [task % 2 == 0 for task in tasks])


def test_solved_tasks_rest_until_nothing_else_is_left() -> None:
    pool = TaskPool(PoolConfig(solved=1.0))
    draws = TaskDraws({"": 4}, [1.0], seed=0, shuffle=False, max_prompt_length=64, pool=pool)
    assert draws.draw(0, 4, everything)[0] == [0, 1, 2, 3]
    pool.note([row(task, sample, "correct") for task in (0, 2) for sample in (0, 1)])
    pool.note([row(1, 0, "correct"), row(1, 1, "wrong"), row(3, 0, "wrong"), row(3, 1, "wrong")])
    assert pool.metrics() == {"pool/seen": 4, "pool/resting": 2, "pool/learnable": 1}
    assert draws.draw(4, 4, everything)[0] == [1, 3, 1, 3]
    pool.note([row(task, 0, "correct") for task in (1, 3)])
    assert sorted(draws.draw(8, 4, everything)[0]) == [0, 1, 2, 3]


def test_a_task_rests_for_as_many_visits_as_set() -> None:
    pool = TaskPool(PoolConfig(unsolved=0.0, rest=2))
    draws = TaskDraws({"": 2}, [1.0], seed=0, shuffle=False, max_prompt_length=64, pool=pool)
    pool.note([row(0, 0, "wrong"), row(1, 0, "correct")])
    stored = TaskDraws(
        {"": 2}, [1.0], seed=0, shuffle=False, max_prompt_length=64, pool=TaskPool(PoolConfig(unsolved=0.0, rest=2))
    )
    stored.load_state_dict(draws.state_dict())
    assert draws.draw(0, 5, everything)[0] == [1, 1, 0, 1, 0]
    assert stored.draw(0, 5, everything)[0] == [1, 1, 0, 1, 0]


def test_evaluations_take_equally_many_of_each() -> None:
    def member(name: str, tasks: int, size: int | None = None) -> TextMixtureEnv:
        return TextMixtureEnv(name, None, tasks, evaluation_size=size)  # type: ignore[arg-type]  # nothing is rendered

    assert evaluation_tasks([member("", 3)], 5) == [0, 1, 2]
    assert evaluation_tasks([member("a", 9), member("b", 9)], 5) == [0, 1, 2, 3, 4]
    assert evaluation_tasks([member("a", 9), member("b", 1), member("c", 9, 2)], 6) == [0, 1, 2, 3, 5]


def test_metrics_of_a_mixture_have_names_of_their_own() -> None:
    members = [TextMixtureEnv(name, None, 4) for name in ("a", "b")]  # type: ignore[arg-type]  # nothing is rendered
    rows = [row(task, sample, "correct" if task % 2 else "wrong") for task in (0, 1, 3) for sample in (0, 1)]
    metrics = metrics_by_member(members, rows)
    assert [metrics[f"rollout/{name}"] for name in ("groups/a", "groups/b", "accuracy/a", "accuracy/b")] == [1, 2, 0, 1]
    assert metrics_by_member(members[:1], rows) == {}
