"""Several tasks in one run: their shares, their seeds, and the environment that plays them all."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from rlinf.config import load_mapping
from rlinf.models.actor_critic import ActorCritic, ActorCriticOptions
from rlinf.rollouts.simulator.episodes import EpisodeCollector, EpisodeTask
from rlinf.rollouts.simulator.rollout import VectorRollout
from rlinf.rollouts.vec_env.make_env import make_env
from rlinf.rollouts.vec_env.mixture import Mixture, stratified
from rlinf.rollouts.vec_env.sync import SyncVecEnv
from rlinf.rollouts.vec_env.vec_env import SpacesDifferError
from rlinf.rollouts.wrappers import BlankWords, Instruct, OtherGoal
from rlinf.schema import EnvConfig, TaskConfig
from rlinf.train.run import run

TABLETOP = "rlinf_envs:rlinf/Tabletop-v0"
TWO = [TaskConfig(kwargs={"task": "touch"}, weight=3.0), TaskConfig(kwargs={"task": "push"})]
SMALL = {"image_size": 16, "num_states": 50, "max_steps": 6}
PUSHES = b"push"


def table(**changes: Any) -> EnvConfig:
    return EnvConfig(TABLETOP, dict(SMALL), tasks=TWO, step_timeout_s=0.0, **changes)


def test_every_rollout_has_the_shares_and_their_mean_is_exact() -> None:
    weights, total = [5.0, 2.0, 0.0, 1.3], Counter[int]()
    for seed in range(600):
        drawn = Counter(stratified(weights, 7, np.random.default_rng(seed)))
        assert all(abs(drawn[task] - 7 * weight / 8.3) < 1 for task, weight in enumerate(weights))
        total += drawn
    assert total[2] == 0
    for task, weight in enumerate(weights):
        assert total[task] / 4200 == pytest.approx(weight / 8.3, abs=0.01)
    orders = {tuple(stratified([1.0, 1.0], 4, np.random.default_rng(seed))) for seed in range(40)}
    assert len(orders) == 6


def test_a_seed_names_its_task_and_no_task_changes_no_seed() -> None:
    mixture, seeds = Mixture.of(table()), [2**62 + 11 * n for n in range(8)]
    drawn = mixture.drawn(seeds, np.random.default_rng(0))
    assert Counter(map(mixture.name, drawn)) == {"touch": 6, "push": 2}
    assert max(drawn) < 2**31
    assert len({seed // 2 for seed in drawn}) == 8
    assert [mixture.name(seed) for seed in mixture.in_turn(seeds)] == ["touch", "push"] * 4
    alone = Mixture.of(EnvConfig(TABLETOP))
    assert alone.drawn(seeds, np.random.default_rng(0)) == alone.in_turn(seeds) == seeds
    assert alone.name(5) == ""


def test_an_episode_of_a_mixture_is_that_of_its_task_alone() -> None:
    both = make_env(table())
    for number, task in enumerate(("touch", "push")):
        alone = make_env(EnvConfig(TABLETOP, {**SMALL, "task": task}))
        seen, info = both.reset(seed=2 * 17 + number)
        meant, _ = alone.reset(seed=17)
        assert seen["instruction"] == meant["instruction"]
        assert seen["instruction"].startswith(task)
        assert np.array_equal(seen["image"], meant["image"])
        assert info["reset_state_id"] < 50
        assert np.array_equal(both.get_wrapper_attr("expert_action")(), alone.get_wrapper_attr("expert_action")())
        action = np.ones(2, np.float32)
        assert np.array_equal(both.step(action)[0]["image"], alone.step(action)[0]["image"])


def test_sub_environments_stay_with_the_tasks_that_they_have_made() -> None:
    """Engines are dear: eight sub-environments and four tasks make two of each, whatever the order of the episodes."""
    tasks = [TaskConfig(name=str(number)) for number in range(4)]
    options = EnvConfig(TABLETOP, dict(SMALL), tasks=tasks, step_timeout_s=0.0)
    mixture, made = Mixture.of(options), Counter[tuple[int, int]]()
    vec_env = SyncVecEnv(options, 8)
    reset = vec_env.reset

    def counted(env_indices: Any, seeds: Any) -> dict[int, str]:
        for env_index, seed in zip(env_indices, seeds, strict=True):
            made[env_index, seed % 4] += 1
        return reset(env_indices, seeds)

    vec_env.reset = counted  # type: ignore[method-assign]
    collector = EpisodeCollector(vec_env, seed=0, mixture=mixture)
    episodes = [EpisodeTask(row, row // 8, 4 * row + row // 8) for row in range(32)]
    policy = ActorCritic(vec_env.observation_space["state"], vec_env.action_space, ActorCriticOptions())  # type: ignore[index]
    found = collector.run(StateOnly(policy), episodes, 0)
    assert [episode.task for episode in found.episodes] == episodes
    assert Counter(record.record.task for record in found.episodes) == {str(number): 8 for number in range(4)}
    assert Counter(task for _, task in made) == dict.fromkeys(range(4), 2)


def test_tasks_whose_spaces_differ_are_refused() -> None:
    tasks = [TaskConfig(kwargs={"image_size": 16}), TaskConfig(kwargs={"image_size": 24})]
    env = make_env(EnvConfig(TABLETOP, tasks=tasks))
    with pytest.raises(SpacesDifferError, match=r"task 1 of env\.tasks"):
        env.reset(seed=1)


class StateOnly:
    """A policy that sees one leaf of the observation."""

    def __init__(self, policy: Any) -> None:
        self._policy = policy

    def step(self, observations: Any, state: Any, noise: Any) -> Any:
        return self._policy.step({"observation": observations["observation.state"]}, state, noise)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._policy, name)


class Rollout:
    """Env workers that keep the tasks they are to collect."""

    size = 2

    def __init__(self) -> None:
        self.tasks: list[Any] = []

    def call(self, method: str, *args: Any, per_rank: Any = None) -> list[Any]:
        self.tasks += [task for share in per_rank for task in share[1]]
        raise InterruptedError


def test_groups_never_mix_tasks_and_a_step_draws_the_same_after_a_restart() -> None:
    tasks = [{"kwargs": {"task": "touch"}, "weight": 3.0}, {"kwargs": {"task": "push"}}]
    config = load_mapping(
        {
            "env": {"id": TABLETOP, "tasks": tasks, "num_workers": 2},
            "policy": {"name": "vla"},
            "rollout": {"batch_size": 6},
            "algorithm": {"adv_type": "grpo", "group_size": 4},
        }
    )
    tasks = []
    for _ in range(2):
        workers: Any = Rollout()
        with pytest.raises(InterruptedError):
            VectorRollout(workers, config.collection).collect(5)
        tasks.append(workers.tasks)
    assert tasks[0] == tasks[1]
    groups: dict[int, set[int]] = {}
    for task in tasks[0]:
        groups.setdefault(task.group, set()).add(task.start_seed)
    assert [len(starts) for starts in groups.values()] == [1] * 6
    names = Counter(Mixture.of(config.env).name(starts.pop()) for starts in groups.values())
    assert names["touch"] in (4, 5)
    assert names.total() == 6


@pytest.mark.slow
def test_a_run_on_two_tasks_measures_each_and_resumes_exactly(tmp_path: Path) -> None:
    """PPO, whose episodes go on from one iteration to the next."""

    def trained(folder: Path, steps: int) -> list[dict[str, float]]:
        sections = {
            "run": {"dir": str(folder), "max_steps": steps},
            "env": {
                "id": TABLETOP,
                "kwargs": SMALL,
                "tasks": [{"kwargs": {"task": "touch"}}, {"kwargs": {"task": "push"}}],
                "wrappers": ["rlinf.rollouts.wrappers:TokenizeText"],
                "num_envs": 4,
            },
            "policy": {"name": "actor_critic", "hidden_sizes": [8], "embedding_size": 8},
            "rollout": {"num_steps": 10},
            "algorithm": {"adv_type": "gae", "loss_type": "actor_critic"},
            "evaluation": {"size": 6, "every": 2, "words": ["other_goal", "blank"]},
            "cluster": {"backend": "local"},
            "checkpoint": {"every": 2},
            "logging": {"progress": "none"},
        }
        run(load_mapping(sections))
        return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]

    whole = trained(tmp_path / "whole", 4)
    trained(tmp_path / "parts", 2)
    parts = trained(tmp_path / "parts", 4)
    for name in ("train/loss", "rollout/return", "eval/success_once/push", "eval/follows"):
        assert [row.get(name) for row in parts] == [row.get(name) for row in whole]
    last = whole[-1]
    assert last["eval/success_once/touch/n"] == last["eval/success_once/push/n"] == 3.0
    assert last["eval/success_once"] == pytest.approx(
        (last["eval/success_once/touch"] + last["eval/success_once/push"]) / 2
    )
    assert last["eval/follows/n"] == last["eval/blank_words/n"] == 6.0
    assert any("rollout/success_once/push" in row for row in whole)


def test_another_goal_is_requested_and_confirmed() -> None:
    for task in ("touch", "push"):
        given = make_env(EnvConfig(TABLETOP, {**SMALL, "task": task}))
        other = OtherGoal(make_env(EnvConfig(TABLETOP, {**SMALL, "task": task})))
        for seed in range(20):
            (before, _), (after, _) = given.reset(seed=seed), other.reset(seed=seed)
            assert before["instruction"] != after["instruction"]
            assert np.array_equal(before["image"], after["image"])
    # Success is of the goal requested now: its own demonstrator gets there.
    solved = 0
    other = OtherGoal(make_env(EnvConfig(TABLETOP, {**SMALL, "max_steps": 60})))
    for seed in range(10):
        other.reset(seed=seed)
        over = False
        while not over:
            _, _, terminated, truncated, info = other.step(other.get_wrapper_attr("expert_action")())
            over = terminated or truncated
        solved += info["success"]
    assert solved >= 9
    single = OtherGoal(make_env(EnvConfig(TABLETOP, {**SMALL, "task": "push", "bodies": 1})))
    assert "edge" in single.reset(seed=0)[0]["instruction"]
    with pytest.raises(ValueError, match="no other goal"):
        OtherGoal(make_env(EnvConfig(TABLETOP, {**SMALL, "bodies": 1}))).reset(seed=0)
    with pytest.raises(ValueError, match="does not support"):
        OtherGoal(gymnasium.make("CartPole-v1")).reset(seed=0)


def test_words_are_added_and_taken_away() -> None:
    tasks = [TaskConfig(instruction="balance"), TaskConfig(instruction="balance the pole")]
    env = make_env(EnvConfig("CartPole-v1", tasks=tasks))
    seen, _ = env.reset(seed=2 * 5 + 1)
    assert seen["instruction"] == "balance the pole"
    assert np.array_equal(seen["observation"], gymnasium.make("CartPole-v1").reset(seed=5)[0])
    assert isinstance(env.observation_space, spaces.Dict)
    assert env.observation_space["instruction"].max_length == 16  # type: ignore[attr-defined]
    blank = BlankWords(Instruct(gymnasium.make("CartPole-v1"), "balance", 16))
    seen, _ = blank.reset(seed=5)
    assert seen in blank.observation_space
    assert seen["instruction"] == ""
    with pytest.raises(TypeError, match="text in it"):
        BlankWords(gymnasium.make("CartPole-v1"))


def test_pictures_without_a_reader_are_not_drawn() -> None:
    vec_env = SyncVecEnv(table(), 1)
    vec_env.reset([0], [7])
    vec_env.step([0], np.zeros((1, 2)), observe=False)
    assert not vec_env.observations["observation.image"].any()
    assert vec_env.observations["observation.instruction"][0].tobytes().startswith(PUSHES)
    vec_env.step([0], np.zeros((1, 2)))
    assert vec_env.observations["observation.image"].any()
    stacked = SyncVecEnv(table(frame_stack=2), 1)
    stacked.reset([0], [7])
    stacked.step([0], np.zeros((1, 2)), observe=False)
    assert stacked.observations["observation.image"][0, -1].any()
