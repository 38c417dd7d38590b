"""Which start states evaluation episodes begin in, and by what names two evaluations find each other's."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from rlinf.rollouts.simulator.evaluation_starts import evaluation_tasks, start_name
from rlinf.rollouts.vec_env.mixture import ONE_TASK, Mixture
from rlinf.schema import EnvConfig, TaskConfig

TEN = EnvConfig("rlinf_envs:rlinf/Tabletop-v0", {"bodies": 1}, reset_state_ids=list(range(100, 110)))


def states(count: int, mixture: Mixture = ONE_TASK, seed: int = 7) -> list[tuple[int, int]]:
    """(task, index of the state) of each episode, as the environments find them in its seed."""
    tasks = evaluation_tasks(seed, mixture, count, states=10)
    assert all(0 <= task.start_seed < 2**31 for task in tasks)
    parted = [mixture.parted(task.start_seed) for task in tasks]
    return [(number, own % 10) for own, number in parted]


def test_each_state_comes_once_before_any_comes_again() -> None:
    found = states(25)
    assert sorted(found[:10]) == sorted(found[10:20]) == [(0, state) for state in range(10)]
    assert len(set(found[20:])) == 5
    assert found[:10] != found[10:20]
    assert states(7) == found[:7]
    assert states(25, seed=8) != found
    seeds = [task.start_seed for task in evaluation_tasks(7, ONE_TASK, 20, states=10)]
    assert len(set(seeds)) == 20


@pytest.mark.parametrize("tasks", [2, 3])
def test_every_task_of_a_mixture_plays_each_of_its_states_once(tasks: int) -> None:
    options = replace(TEN, tasks=[TaskConfig(kwargs={"bodies": n + 1}) for n in range(tasks)])
    found = states(10 * tasks, Mixture.of(options))
    assert [task for task, _ in found[:tasks]] == list(range(tasks))
    assert Counter(found) == {(task, state): 1 for task in range(tasks) for state in range(10)}


def test_a_name_is_of_the_environment_the_task_and_the_state() -> None:
    first, again = (evaluation_tasks(seed, ONE_TASK, 10, states=10) for seed in (7, 8))
    named = {start_name(TEN, ONE_TASK, task.start_seed) for task in first}
    assert len(named) == 10
    assert named == {start_name(TEN, ONE_TASK, task.start_seed) for task in again}
    # Without numbered states the seed is the start.
    bare = replace(TEN, reset_state_ids=[])
    assert start_name(bare, ONE_TASK, 3) == start_name(bare, ONE_TASK, 3) != start_name(bare, ONE_TASK, 4)
    assert start_name(bare, ONE_TASK, 3) not in named
    assert start_name(replace(bare, kwargs={"bodies": 2}), ONE_TASK, 3) != start_name(bare, ONE_TASK, 3)
    two = replace(bare, tasks=[TaskConfig(), TaskConfig(kwargs={"bodies": 2})])
    mixture = Mixture.of(two)
    assert start_name(two, mixture, 6) == start_name(bare, ONE_TASK, 3) != start_name(two, mixture, 7)
