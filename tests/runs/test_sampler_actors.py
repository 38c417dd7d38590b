"""Simulator policies in sampler actors: the numbers of acting in the env worker, and the dead are replaced."""

from __future__ import annotations

import os
import signal
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from held_weights import send
from simulator_runs import overrides, recipe, summary

from rlinf.cluster import Cluster, RankInfo, connect
from rlinf.config import Config, load
from rlinf.data.batch import Batch
from rlinf.rollouts.simulator.rollout import VectorRollout, env_ranges
from rlinf.schema.cluster import ClusterConfig
from rlinf.train.assemble.simulator import make_policy
from rlinf.train.workers.env_pool import EnvPool
from rlinf.train.workers.served_env_pool import ServedEnvPool
from rlinf.train.workers.simulator_workers import PolicyServerWorker, SimulatorWorker

SAMPLED = ["rollout.act_in=sampler", "rollout.pipeline_stages=2", "env.num_workers=2"]


class Mortal(PolicyServerWorker):
    """A sampler whose process can be ended from inside, and that counts its questions."""

    questions = 0

    def answer(self, request: Any) -> Any:
        self.questions += request.method == "decide"
        return super().answer(request)

    def count(self) -> int:
        return self.questions

    def die(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


class MortalEnv(SimulatorWorker):
    def die(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


def build_env(config: Config, info: RankInfo) -> SimulatorWorker:
    env_indices = env_ranges(config.env.num_envs, info.size)[info.rank]
    return MortalEnv(config, env_indices, partial(make_policy, config))


def build_sampler(config: Config, spaces: Any, _info: RankInfo) -> PolicyServerWorker:
    return Mortal(make_policy(config, *spaces), torch.device("cpu"))


def settings(folder: Path, kind: str, *more: str) -> Config:
    return load(recipe(folder, kind), [*overrides(folder, 2), *more])


def rollouts(cluster: Cluster, config: Config, *, sampled: bool, samplers: int = 1) -> tuple[VectorRollout, Any]:
    envs = cluster.spawn("env", partial(build_env, config), n=config.env.num_workers)
    pool = EnvPool(envs)
    if sampled:
        group = cluster.spawn("sampler", partial(build_sampler, config, pool.spaces()), n=samplers)
        pool = ServedEnvPool(envs, group, cluster, merge=config.rollout.merge_requests)
    rollout = VectorRollout(pool, config.collection)
    policy = make_policy(config, *pool.spaces())
    send(cluster, config, pool, policy, version=3)
    return rollout, pool


def collected(config: Config, steps: int, *, sampled: bool) -> list[Batch]:
    with connect(config.cluster) as cluster:
        rollout, pool = rollouts(cluster, config, sampled=sampled)
        batches = [rollout.collect(step)[0] for step in range(steps)]
        assert len(rollout.evaluate(3).records) == 3
        if sampled:
            assert pool.timing["time/policy_busy_s"] > 0
            assert set(pool.numbers()) >= {"failures/samplers", "time/env_waits_s", "time/policy_waits_s"}
    return batches


def assert_same(one: Batch, other: Batch) -> None:
    for name, value in vars(one).items():
        theirs = getattr(other, name)
        if isinstance(value, torch.Tensor):
            assert torch.equal(torch.nan_to_num(value), torch.nan_to_num(theirs)), name
    assert one.inputs.named().keys() == other.inputs.named().keys()
    assert all(torch.equal(value, other.inputs.named()[name]) for name, value in one.inputs.named().items())


@pytest.mark.parametrize(
    ("kind", "stages"),
    [
        ("ppo_normalised", 1),
        ("grpo", 2),
        ("sac", 1),
        *(
            pytest.param(kind, stages, marks=pytest.mark.slow)
            for kind, stages in (("ppo", 1), ("ppo", 2), ("ppo_normalised", 2), ("grpo", 1), ("sac", 2))
        ),
    ],
)
def test_samplers_give_the_batches_of_acting_in_the_worker(tmp_path: Path, kind: str, stages: int) -> None:
    more = [] if kind == "sac" else ["env.num_workers=2"]
    config = settings(tmp_path / "run", kind, *more, "rollout.act_in=sampler", f"rollout.pipeline_stages={stages}")
    # In the worker the sub-environments are cut alike: a matrix product may round differently for another number of
    # rows.
    inside = collected(config, 3, sampled=False)
    for one, other in zip(inside, collected(config, 3, sampled=True), strict=True):
        assert_same(one, other)
        assert int(one.policy_version.max()) == 3


def test_simultaneous_requests_of_workers_are_answered_together(tmp_path: Path) -> None:
    """Two workers of two stages, 32 decisions each: 128 questions, or half as many."""
    more = ["env.num_workers=2", "rollout.act_in=sampler", "rollout.pipeline_stages=2"]
    found = []
    for merge in ("false", "true"):
        config = settings(tmp_path / "run", "ppo", *more, f"rollout.merge_requests={merge}")
        with connect(config.cluster) as cluster:
            rollout, pool = rollouts(cluster, config, sampled=True)
            found.append((rollout.collect(0)[0], pool.servers.group.call_one(0, "count")))
            assert len(rollout.evaluate(3).records) == 3
    (alone, questions), (together, fewer) = found
    assert (questions, fewer) == (128, 64)
    assert torch.equal(alone.actions, together.actions)
    torch.testing.assert_close(alone.rollout_logprobs, together.rollout_logprobs, atol=1e-5, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [pytest.param("ppo", marks=pytest.mark.slow), "grpo"])
def test_whole_runs_are_the_same_and_resume(tmp_path: Path, kind: str) -> None:
    inside = summary(tmp_path / "inside", kind, 4, ["env.num_workers=2"])
    outside = summary(tmp_path / "outside", kind, 4, SAMPLED)
    summary(tmp_path / "resumed", kind, 2, SAMPLED)
    resumed = summary(tmp_path / "resumed", kind, 4, SAMPLED)
    assert outside["params_sha256"] == inside["params_sha256"] == resumed["params_sha256"]
    assert outside["metrics"]["eval/return"] == inside["metrics"]["eval/return"]
    assert "time/policy_waits_s" in (tmp_path / "outside" / "metrics.jsonl").read_text()


@pytest.mark.slow
@pytest.mark.usefixtures("ray_session")
def test_actors_give_the_same_and_those_that_die_are_replaced(tmp_path: Path) -> None:
    config = settings(tmp_path / "run", "grpo", *SAMPLED, "env.num_workers=1")
    inside = collected(config, 3, sampled=False)
    with connect(ClusterConfig()) as cluster:
        rollout, pool = rollouts(cluster, config, sampled=True, samplers=2)
        assert_same(rollout.collect(0)[0], inside[0])
        pool.servers.group.submit_one(0, "die")
        assert_same(rollout.collect(1)[0], inside[1])
        assert pool.servers.restarts == 1
        pool.group.submit_one(0, "die")
        assert_same(rollout.collect(2)[0], inside[2])
        assert pool.numbers()["failures/env_workers"] == 1
        assert len(rollout.evaluate(4).records) == 4


class Asleep(PolicyServerWorker):
    """Hangs at its first question, once."""

    def answer(self, request: Any) -> Any:
        import time

        marker = Path(os.environ["SLEPT_MARKER"])
        if not marker.exists():
            marker.touch()
            time.sleep(600)
        return super().answer(request)


def build_asleep(config: Config, spaces: Any, _info: RankInfo) -> PolicyServerWorker:
    return Asleep(make_policy(config, *spaces), torch.device("cpu"))


@pytest.mark.slow
@pytest.mark.usefixtures("ray_session")
def test_a_sampler_that_hangs_past_its_deadline_is_replaced(tmp_path: Path) -> None:
    config = settings(tmp_path / "run", "grpo", *SAMPLED)
    inside = collected(config, 1, sampled=False)
    marker = {"SLEPT_MARKER": str(tmp_path / "slept")}
    with connect(ClusterConfig(call_timeout_s=15.0, env=marker)) as cluster:
        envs = cluster.spawn("env", partial(build_env, config), n=2)
        spaces = EnvPool(envs).spaces()
        group = cluster.spawn("sampler", partial(build_asleep, config, spaces), n=1)
        pool = ServedEnvPool(envs, group, cluster)
        rollout = VectorRollout(pool, config.collection)
        policy = make_policy(config, *spaces)
        send(cluster, config, pool, policy, version=3)
        assert_same(rollout.collect(0)[0], inside[0])
        assert pool.servers.restarts == 1
