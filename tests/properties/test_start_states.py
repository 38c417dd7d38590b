"""Start states by number: which one an episode begins from, in groups, in evaluations and behind a socket."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import replace
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from simulator_config import simulator_config

from rlinf.models.actor_critic import ActorCritic, ActorCriticOptions
from rlinf.rollouts.isolation.start_states import ignores_state_ids
from rlinf.rollouts.simulator.env_worker import EnvWorker
from rlinf.rollouts.simulator.episodes import EpisodeTask
from rlinf.rollouts.vec_env.make_env import make_env
from rlinf.rollouts.vec_env.vectorize import make_vec_env
from rlinf.schema import EnvConfig, EvaluationConfig


class Numbered(gymnasium.Env):
    """One step, which pays the number of the start state."""

    observation_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.number = -1 if options is None else options["reset_state_id"]
        return np.zeros(1, np.float32), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        return np.zeros(1, np.float32), float(self.number), True, False, {}


gymnasium.register("NumberedForTests-v0", entry_point=Numbered)
OPTIONS = EnvConfig("NumberedForTests-v0", reset_state_ids=[3, 5, 8])


def test_members_of_a_group_share_a_state_and_all_states_come_up() -> None:
    config = simulator_config(OPTIONS, "episodes", evaluation=EvaluationConfig(num_envs=1, reset_state_ids=[20]))
    worker = EnvWorker(config.collection, range(4), partial(ActorCritic, options=ActorCriticOptions(hidden_sizes=(8,))))
    tasks = [EpisodeTask(row, row // 2, 1_000_003 * (row // 2)) for row in range(60)]
    totals = [record.total for record in worker.collect(0, tasks).episodes]
    assert totals[0::2] == totals[1::2]
    assert min(Counter(totals[0::2])[number] for number in OPTIONS.reset_state_ids) >= 5
    assert set(totals) == set(OPTIONS.reset_state_ids)
    assert {record.total for record in worker.evaluate(tasks).episodes} == {20.0}


def test_without_a_seed_the_environments_own_stream_picks() -> None:
    env = make_env(OPTIONS)
    env.reset(seed=4)
    numbers = []
    for _ in range(30):
        env.reset()
        numbers.append(env.unwrapped.number)
    assert set(numbers) == set(OPTIONS.reset_state_ids)
    env.reset(options={"reset_state_id": 77})
    assert env.unwrapped.number == 77


@pytest.mark.parametrize("isolation", ["none", "process"])
def test_a_numbered_table_is_the_same_wherever_it_stands(isolation: Any) -> None:
    bare = EnvConfig("rlinf_envs:rlinf/Tabletop-v0", {"num_states": 40, "image_size": 16})
    options = replace(bare, reset_state_ids=[7], isolation=isolation, python=sys.executable)
    vec_env = make_vec_env(replace(options, vectorization="sync"), 2)
    try:
        assert not vec_env.reset([0, 1], [1, 2])
        tips = vec_env.observations["observation.state"].copy()
    finally:
        vec_env.close()
    wanted, info = make_env(bare).reset(seed=9, options={"reset_state_id": 7})
    assert info["reset_state_id"] == 7
    np.testing.assert_array_equal(tips, np.stack([wanted["state"]] * 2))
    with pytest.raises(ValueError, match="reset_state_id 40 is not among 0 to 39"):
        make_env(replace(bare, reset_state_ids=[40])).reset(seed=0)


@pytest.mark.parametrize("isolation", ["none", "process"])
def test_start_states_whose_numbers_are_not_read(isolation: Any) -> None:
    ignored = EnvConfig("CartPole-v1", reset_state_ids=[4, 4, 7], isolation=isolation, python=sys.executable)
    assert ignores_state_ids(ignored)
    assert not ignores_state_ids(replace(ignored, reset_state_ids=[4, 4]))
    table = EnvConfig("rlinf_envs:rlinf/Tabletop-v0", {"image_size": 16}, reset_state_ids=[1, 2])
    assert not ignores_state_ids(replace(table, isolation=isolation, python=sys.executable))


def test_equal_observations_of_start_states_are_confirmed_by_their_info(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ignores_state_ids(OPTIONS)
    plain = Numbered.reset
    monkeypatch.setattr(
        Numbered, "reset", lambda self, **given: (plain(self, **given)[0], {"reset_state_id": self.number})
    )
    assert not ignores_state_ids(OPTIONS)


def test_start_states_that_fail_are_left_to_the_rollouts() -> None:
    refused = EnvConfig("rlinf_envs:rlinf/Tabletop-v0", {"num_states": 40, "image_size": 16}, reset_state_ids=[40, 41])
    assert not ignores_state_ids(refused)
