"""Simulator runs over Ray actors: the numbers of one process, and a worker that dies is restarted."""

from __future__ import annotations

import json
import os
import signal
import sys
from functools import partial
from pathlib import Path

import pytest
import torch
from held_weights import send
from simulator_runs import overrides, recipe, summary

from rlinf.cluster import Cluster, RankInfo
from rlinf.config import Config, load
from rlinf.rollouts.simulator.rollout import VectorRollout, env_ranges
from rlinf.train.assemble.simulator import make_policy
from rlinf.train.workers.env_pool import EnvPool
from rlinf.train.workers.simulator_workers import SimulatorWorker

WORKERS = 2
pytestmark = pytest.mark.usefixtures("ray_session")
# Every commit's tests show them in one process, and one simulator on Ray with environments that hang (test-faults).
KINDS = (
    "ppo",
    "images",
    "images_sac",
    "grpo",
    "sac_chunks",
    "sac",
    "sac_hindsight",
    "td3",
    "ddpg",
    "tqc",
    "dqn",
    "discrete_sac",
    "crossq",
    "chunks",
    "chunked_episodes",
)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_ray_gives_what_one_process_gives(tmp_path: Path, kind: str) -> None:
    workers = f"env.num_workers={WORKERS}"
    here = summary(tmp_path / "here", kind, 2, [workers])
    there = summary(tmp_path / "there", kind, 2, [workers, "cluster.backend=ray"])
    assert there["params_sha256"] == here["params_sha256"]
    assert there["metrics"]["eval/return"] == here["metrics"]["eval/return"]


@pytest.mark.slow
def test_two_ranks_of_sac_learn_what_one_learns_and_go_on_exactly(tmp_path: Path) -> None:
    two = ["learner.num_workers=2", "cluster.backend=ray"]
    here = summary(tmp_path / "here", "sac", 4)
    there = summary(tmp_path / "there", "sac", 4, two)
    assert there["metrics"]["eval/return"] == pytest.approx(here["metrics"]["eval/return"], rel=1e-3)
    first, second = (_last_line(tmp_path / name) for name in ("here", "there"))
    assert first["train/updates"] == second["train/updates"] > 0
    for name in ("critic_loss", "actor_loss", "entropy", "alpha"):
        assert second[f"train/{name}"] == pytest.approx(first[f"train/{name}"], rel=1e-3), name
    summary(tmp_path / "halves", "sac", 2, two)
    resumed = summary(tmp_path / "halves", "sac", 4, two)
    assert resumed["params_sha256"] == there["params_sha256"]


@pytest.mark.slow
def test_two_ranks_learn_the_same_from_images_wherever_the_policy_acts(tmp_path: Path) -> None:
    more = [f"env.num_workers={WORKERS}", "cluster.backend=ray", "learner.num_workers=2", "rollout.staleness=1"]
    here = summary(tmp_path / "here", "images", 4, more)
    served = summary(tmp_path / "served", "images", 4, [*more, "rollout.act_in=sampler"])
    assert served["params_sha256"] == here["params_sha256"]
    one = summary(tmp_path / "one", "images", 4, ["rollout.staleness=1"])
    assert here["metrics"]["eval/return"] == pytest.approx(one["metrics"]["eval/return"], rel=1e-3)


def _last_line(folder: Path) -> dict[str, float]:
    return json.loads((folder / "metrics.jsonl").read_text().splitlines()[-1])


@pytest.mark.slow  # tests/rollouts/isolation/test_process_isolation.py, in one process
@pytest.mark.parametrize("kind", ["ppo", pytest.param("grpo", marks=pytest.mark.slow)])
def test_another_interpreter_gives_what_this_one_gives(tmp_path: Path, kind: str) -> None:
    workers = f"env.num_workers={WORKERS}"
    here = summary(tmp_path / "here", kind, 2, [workers])
    isolated = ["env.isolation=process", f"env.python={sys.executable}"]
    there = summary(tmp_path / "there", kind, 2, [*isolated, workers, "cluster.backend=ray"])
    assert there["params_sha256"] == here["params_sha256"]
    assert there["metrics"]["eval/return"] == here["metrics"]["eval/return"]


@pytest.mark.slow
def test_filming_changes_no_number_on_ray(tmp_path: Path) -> None:
    pytest.importorskip("av", reason="needs the extra video")
    pytest.importorskip("pygame", reason="needs the extra video")
    more = [f"env.num_workers={WORKERS}", "evaluation.every=1", "evaluation.size=8"]
    plain = summary(tmp_path / "plain", "ppo", 2, more)
    film = ["evaluation.video_every=2", "evaluation.video_episodes=3", "cluster.backend=ray"]
    filmed = summary(tmp_path / "filmed", "ppo", 2, [*more, *film])
    assert filmed["metrics"] == pytest.approx(plain["metrics"])
    assert filmed["params_sha256"] == plain["params_sha256"]
    videos = sorted((tmp_path / "filmed" / "videos").iterdir())
    assert [path.name for path in videos] == ["step_000000.mp4", "step_000002.mp4"]
    lines = (tmp_path / "filmed" / "episodes" / "step_000002.jsonl").read_text().splitlines()
    episodes = [json.loads(line) for line in lines]
    assert [episode["video"] for episode in episodes] == ["step_000002.mp4"] * 3
    assert all(sum(episode["trace"]["reward"]) == episode["total"] for episode in episodes)


class Mortal(SimulatorWorker):
    """An env worker whose process can be ended from inside, as a crashing simulator does."""

    def die(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


def build(config: Config, info: RankInfo) -> SimulatorWorker:
    env_indices = env_ranges(config.env.num_envs, info.size)[info.rank]
    return Mortal(config, env_indices, partial(make_policy, config))


@pytest.mark.slow
def test_a_dead_env_worker_is_started_again_with_the_newest_weights(tmp_path: Path, ray_session: Cluster) -> None:
    config = load(recipe(tmp_path / "run", "ppo"), overrides(tmp_path / "run", 2))
    with ray_session.spawn("env", partial(build, config), n=WORKERS) as group:
        pool = EnvPool(group)
        rollout = VectorRollout(pool, config.collection)
        policy = make_policy(config, *pool.spaces())
        torch.nn.init.constant_(policy.value_head.bias, 3.0)
        send(ray_session, config, pool, policy, version=1)
        before, _ = rollout.collect(0)
        group.submit_one(1, "die")
        after, metrics = rollout.collect(1)
        assert pool.restarts == 1
        assert after.num_rows == before.num_rows
        assert metrics["rollout/env_steps"] == int(after.mask.sum())
        # The bias came with the weights, which the new worker was given too.
        assert after.old_values is not None
        assert bool((after.old_values[-1].mean() - 3.0).abs() < 1.0)
        assert len(rollout.evaluate(4).records) == 4
