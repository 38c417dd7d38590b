"""`env.step_timeout_s` on Ray and in one process: what hangs costs its own episode or conversation, and is counted."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import text_envs
from answering import graded
from simulator_runs import overrides, recipe

from rlinf.base.errors import UserError
from rlinf.cluster import Cluster, RankInfo, connect
from rlinf.config import Config, load
from rlinf.data.messages import WeightUpdate
from rlinf.rollouts.simulator.env_worker import EnvWorker
from rlinf.rollouts.simulator.rollout import VectorRollout, env_ranges
from rlinf.rollouts.text.conversation import Response
from rlinf.rollouts.text.env_worker import TextEnvWorker
from rlinf.schema import EnvConfig
from rlinf.schema.cluster import ClusterConfig
from rlinf.train.assemble.simulator import make_policy
from rlinf.train.workers.env_pool import EnvPool
from rlinf.train.workers.text_env_pool import TextEnvPool

pytestmark = pytest.mark.faults

TIMEOUT_S = 0.5


@pytest.fixture(scope="module", params=["local", "ray"])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    if request.param == "ray":
        request.getfixturevalue("ray_session")
    with connect(ClusterConfig(backend=request.param)) as found:
        found.backend = request.param  # type: ignore[attr-defined]
        yield found


def build_simulators(config: Config, info: RankInfo) -> EnvWorker:
    return EnvWorker(config.collection, env_ranges(4, info.size)[info.rank], partial(make_policy, config))


def test_a_simulator_that_hangs_costs_its_episode(tmp_path: Path, cluster: Cluster) -> None:
    hangs = ["env.kwargs={hang_every: 40}", f"env.step_timeout_s={TIMEOUT_S}"]
    config = load(recipe(tmp_path / "run", "ppo_faulty"), [*overrides(tmp_path / "run", 2), *hangs])
    with cluster.spawn("env", partial(build_simulators, config)) as group:
        pool = EnvPool(group)
        rollout = VectorRollout(pool, config.collection)
        policy = make_policy(config, *pool.spaces())
        pool.call("load", WeightUpdate(1, {name: tensor.clone() for name, tensor in policy.weights()}))
        batch, metrics = rollout.collect(0)
        assert metrics["env/timeouts"] > 0
        assert pool.restarts == 0, "the worker was not lost"
        assert bool(batch.mask.any())
        assert not bool(batch.mask.all())


def build_text(kwargs: dict[str, Any], backend: str, _info: RankInfo) -> TextEnvWorker:
    limit = TIMEOUT_S if backend == "local" else 0.0
    return TextEnvWorker(text_envs.ID, {"train": kwargs}, max_turns=2, step_timeout_s=limit)


def text_pool(cluster: Cluster, folder: Path, **settings: Any) -> TextEnvPool:
    backend = cluster.backend  # type: ignore[attr-defined]
    group = cluster.spawn("text", partial(build_text, {**text_envs.lines(folder), "max_turns": 2}, backend))
    return TextEnvPool(group, EnvConfig("Lines-v0", step_timeout_s=TIMEOUT_S, **settings))


def test_a_text_environment_that_hangs_costs_its_conversation(tmp_path: Path, cluster: Cluster) -> None:
    pool = text_pool(cluster, tmp_path)
    with pool.group:
        pool.reset("train", [0, 1])
        assert [one.reward for one in graded(pool.answers(), Response(0, "ab?", False))] == [0.0]
        assert [one.lost for one in graded(pool.answers(), Response(1, "hang", False))] == [True]
        assert [one.reward for one in graded(pool.answers(), Response(0, "ab", False))] == [1.0], "it was brought back"
        assert pool.timeouts == 1


@pytest.fixture
def here() -> Iterator[Cluster]:
    with connect(ClusterConfig(backend="local")) as found:
        found.backend = "local"  # type: ignore[attr-defined]
        yield found


def test_only_the_response_that_hangs_is_lost_of_those_that_were_graded_together(tmp_path: Path, here: Cluster) -> None:
    pool = text_pool(here, tmp_path)
    pool.reset("train", [0, 1, 2])
    responses = [Response(place, text, False) for place, text in enumerate(["ab", "hang", "abc"])]
    found = {one.row_index: one for one in graded(pool.answers(), *responses)}
    assert [found[place].lost for place in range(3)] == [False, True, False]
    assert [found[place].reward for place in (0, 2)] == [1.0, 0.0]
    pool.reset("train", [3])
    assert [one.reward for one in graded(pool.answers(), Response(0, "ab", False))] == [1.0]


def test_a_text_environment_that_hangs_too_often_ends_the_run_with_its_name(tmp_path: Path, here: Cluster) -> None:
    pool = text_pool(here, tmp_path, max_failures=0)
    pool.reset("train", [0])
    with pytest.raises(UserError, match=r"(?s)Lines-v0: .*text_envs\.py.*time\.sleep"):
        graded(pool.answers(), Response(0, "hang", False))


def test_conversations_in_channels_go_on_beside_others_and_after_a_restart(tmp_path: Path, here: Cluster) -> None:
    pool = text_pool(here, tmp_path)
    for channel, tasks in ((1, [0, 1]), (2, [2])):
        assert len(pool.open_channel(channel, tasks)[0]) == len(tasks)
    first, second = pool.answers(1), pool.answers(2)
    first.give([Response(1, "ab?", False)])
    assert [one.observation for one in first.take(0.0, complete=False)] == ["go on"]
    # An evaluation in between, and a round of the other channel.
    pool.reset("train", [3])
    assert [one.reward for one in graded(pool.answers(), Response(0, "a", False))] == [0.0]
    second.give([Response(0, "abcd", False)])
    assert [one.reward for one in second.take(0.0, complete=False)] == [1.0]
    pool.close_channel(2)
    pool.restart(0, ValueError("lost"))
    first.give([Response(1, "a", False), Response(0, "ab", False)])
    assert {one.row_index: (one.reward, one.ended) for one in first.take(0.0, complete=False)} == {
        0: (1.0, True),
        1: (0.0, True),
    }
    # Another session tells environments what was said before.
    pool.continue_channel(3, [4, 5], [Response(1, "ab?", False)])
    third = pool.answers(3)
    third.give([Response(1, "ab", False)])
    assert [(one.row_index, one.ended) for one in third.take(0.0, complete=False)] == [(1, True)]
