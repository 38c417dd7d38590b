"""A batch environment that takes a seed for each sub-environment plays the episodes of single ones, all in one call."""

from __future__ import annotations

import weakref
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from seeded_batches import Walks
from simulator_config import simulator_config

from rlinf.models.actor_critic.policy import ActorCritic, ActorCriticOptions
from rlinf.models.policy_requests import PolicyFacts, drive
from rlinf.rollouts.simulator import episodes
from rlinf.rollouts.simulator.env_worker import EnvWorker
from rlinf.rollouts.simulator.episodes import EpisodeCollector, EpisodeRun, EpisodeTask, _Decision
from rlinf.rollouts.vec_env.seeded_batch import SeededBatchVecEnv
from rlinf.rollouts.vec_env.sync import SyncVecEnv
from rlinf.rollouts.vec_env.vec_env import VecEnv
from rlinf.rollouts.vec_env.vectorize import make_seeded_vec_env
from rlinf.schema import EnvConfig, EvaluationConfig

OPTIONS = EnvConfig("seeded_batches:make", vectorization="native", step_timeout_s=0.0)


def played(vec_env: VecEnv, *, brief: bool = False) -> EpisodeRun:
    """Twelve episodes, which end one by one and begin again on the sub-environments that are free."""
    torch.manual_seed(0)
    policy = ActorCritic(vec_env.observation_space, vec_env.action_space, ActorCriticOptions())
    tasks = [EpisodeTask(row, row, 100 + row) for row in range(12)]
    collector = EpisodeCollector(vec_env, seed=0)
    return drive(collector.play(PolicyFacts.of(policy), tasks, (0,), greedy=True, brief=brief), policy)


def test_an_evaluation_keeps_no_more_decisions_than_its_longest_episode_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures of all decisions would fill the memory."""
    whole = played(make_seeded_vec_env(OPTIONS, 3))
    made: list[weakref.ref[_Decision]] = []
    most = 0

    def counted(*columns: Any) -> _Decision:
        nonlocal most
        decision = _Decision(*columns)
        made.append(weakref.ref(decision))
        most = max(most, sum(one() is not None for one in made))
        return decision

    monkeypatch.setattr(episodes, "_Decision", counted)
    brief = played(make_seeded_vec_env(OPTIONS, 3), brief=True)
    # With the one that is being made, and the last one, which the loop still names.
    assert most <= max(len(episode.rewards) for episode in brief.episodes) + 2 < len(made)
    for one, other in zip(brief.episodes, whole.episodes, strict=True):
        assert (one.task, one.terminated, one.rewards.tolist()) == (
            other.task,
            other.terminated,
            other.rewards.tolist(),
        )
        assert one.observations["observation"].tolist() == other.observations["observation"][:1].tolist()


def test_episodes_are_those_of_single_environments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Walks, "calls", 0)
    batch = make_seeded_vec_env(OPTIONS, 5)
    assert isinstance(batch, SeededBatchVecEnv)
    together = played(batch)
    longest = max(len(episode.rewards) for episode in together.episodes)
    assert longest <= Walks.calls < together.env_steps
    alone = played(SyncVecEnv(replace(OPTIONS, vectorization="sync"), 3))
    assert together.env_steps == alone.env_steps
    assert len({len(episode.rewards) for episode in alone.episodes}) > 3
    for one, other in zip(together.episodes, alone.episodes, strict=True):
        assert (one.task, one.terminated) == (other.task, other.terminated)
        np.testing.assert_allclose(one.rewards, other.rewards, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(one.observations["observation"], other.observations["observation"], atol=1e-4)


def test_an_evaluation_makes_as_many_calls_as_its_longest_episode_has_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """During a run that trains on the batch's own stream of starts."""
    config = simulator_config(replace(OPTIONS, num_envs=2), evaluation=EvaluationConfig(size=4, num_envs=4))
    worker = EnvWorker(config.collection, range(2), lambda *both: ActorCritic(*both, ActorCriticOptions()))
    monkeypatch.setattr(Walks, "calls", 0)
    found = worker.evaluate([EpisodeTask(row, row, 100 + row) for row in range(4)])
    assert Walks.calls == max(record.length for record in found.episodes)


def test_one_that_breaks_costs_its_own_episode_alone() -> None:
    broken = played(make_seeded_vec_env(replace(OPTIONS, kwargs={"breaks_at": 2.5}), 5))
    assert broken.failures["nan"] > 0
    whole = {episode.task.row: episode for episode in played(make_seeded_vec_env(OPTIONS, 5)).episodes}
    assert broken.episodes
    assert len(broken.episodes) < len(whole)
    for episode in broken.episodes:
        np.testing.assert_allclose(episode.rewards, whole[episode.task.row].rewards, rtol=1e-4, atol=1e-4)


def test_a_batch_that_takes_no_seeds_is_not_used_for_given_starts() -> None:
    made = make_seeded_vec_env(replace(OPTIONS, id="seeded_batches:make_of_one_stream"), 3)
    assert isinstance(made, SyncVecEnv)
    wrapped = replace(OPTIONS, frame_stack=2)
    assert isinstance(make_seeded_vec_env(wrapped, 3), SyncVecEnv)
