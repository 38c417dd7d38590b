"""Environments with mistakes: instructed in words, counted, and never trained on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from broken_envs import LateStarter, Wearing
from simulator_config import Layout, simulator_config
from worker_group import InThisProcess

from rlinf.models.actor_critic import ActorCritic, ActorCriticOptions
from rlinf.rollouts.simulator.env_worker import EnvWorker
from rlinf.rollouts.simulator.failures import EnvFailureError, FailureCount
from rlinf.rollouts.simulator.rollout import VectorRollout, env_ranges
from rlinf.rollouts.vec_env.vec_env import SpacesDifferError
from rlinf.schema import EnvConfig, EvaluationConfig

LAYOUTS: tuple[Layout, ...] = ("fragments", "episodes")


def build_policy(observation_space: Any, action_space: Any, options: ActorCriticOptions) -> ActorCritic:
    torch.manual_seed(0)
    return ActorCritic(observation_space, action_space, options)


made: list[EnvWorker] = []


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    while made:
        made.pop().close()


def rollout(
    name: str,
    layout: Layout = "fragments",
    *,
    workers: int = 1,
    policy: ActorCriticOptions | None = None,
    evaluation_kwargs: dict[str, Any] | None = None,
    off_policy: bool = False,
    **env: Any,
) -> VectorRollout:
    policy = policy or ActorCriticOptions(hidden_sizes=(8,))
    env_options = EnvConfig(f"broken_envs:{name}-v0", num_action_chunks=policy.num_action_chunks, **env)
    evaluation = EvaluationConfig(num_envs=1, env_kwargs=evaluation_kwargs)
    config = simulator_config(
        env_options, layout, seed=3, num_steps=20, groups=4, group_size=2, off_policy=off_policy, evaluation=evaluation
    )
    build = partial(build_policy, options=policy)
    made.extend(EnvWorker(config.collection, part, build) for part in env_ranges(4, workers))
    patient = replace(config, env=replace(env_options, max_failures=1000))
    return VectorRollout(InThisProcess(made[-workers:]), patient.collection)


@pytest.mark.parametrize("vectorization", ["sync", pytest.param("async", marks=pytest.mark.slow)])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_episode_that_begins_with_a_number_that_is_none_is_dropped(layout: Layout, vectorization: str) -> None:
    batch, metrics = rollout("NanAtReset", layout, vectorization=vectorization).collect(0)
    assert metrics["env/nan"] > 0
    assert metrics["env/failures"] == 0
    assert all(
        torch.isfinite(column).all() for column in (batch.inputs.observations["observation"], batch.rollout_logprobs)
    )
    assert batch.mask.any()


@pytest.mark.parametrize(
    ("name", "words", "vectorization"),
    [
        ("OneNumber", r"observation has shape \(1,\): the observation space has \(3,\)", "sync"),
        ("Forgetful", "an observation lacks observation.speed and has observation.sped", "sync"),
        ("Forgetful", "an observation lacks observation.speed and has observation.sped", "async"),
    ],
)
def test_an_observation_that_is_not_of_its_space_is_reported(name: str, words: str, vectorization: str) -> None:
    it = rollout(name, vectorization=vectorization, max_failures=3)
    with pytest.raises(EnvFailureError, match=f"(?s)broken_envs:{name}-v0: .*{words}.*`rlinf check`"):
        it.collect(0)


def test_numbers_that_are_none_are_named() -> None:
    it = rollout("NanAtReset", max_failures=1)
    with pytest.raises(EnvFailureError, match=r"an observation with observation\[1\] = nan"):
        [it.collect(step) for step in range(5)]


def test_environments_that_differ_are_refused() -> None:
    with pytest.raises(SpacesDifferError, match=r"(?s)environment 1 is Box.*\(3,\).*is Box.*\(4,\).*pad what varies"):
        rollout("Growing")
    it = rollout("Growing", kwargs={"size": 3}, evaluation_kwargs={"size": 4})
    with pytest.raises(SpacesDifferError, match="of an evaluation environment"):
        it.evaluate(2)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_environment_that_wants_to_leave_costs_an_episode(layout: Layout) -> None:
    batch, metrics = rollout("Leaves", layout).collect(0)
    assert metrics["env/failures"] > 0
    assert batch.mask.any()


@pytest.mark.parametrize(
    "policy",
    [
        ActorCriticOptions(hidden_sizes=(8,)),
        ActorCriticOptions(hidden_sizes=(8,), recurrent="gru", embedding_size=8),
        ActorCriticOptions(hidden_sizes=(8,), num_action_chunks=3, logprob_type="action_level"),
    ],
)
def test_a_step_of_which_every_episode_broke_is_collected_again(policy: ActorCriticOptions) -> None:
    LateStarter.broken = 0
    it = rollout("LateStarter", workers=2, policy=policy, kwargs={"failing": 110})
    batch, metrics = it.collect(0)
    assert batch.mask.any()
    # 4 sub-environments of 20 decisions: the whole first rounds failed, and some of the last.
    assert metrics["env/failures"] == 110
    assert metrics["rollout/env_steps"] == metrics["rollout/env_steps_total"] > 0


def test_a_replay_buffer_is_reported_of_a_step_of_which_every_episode_broke() -> None:
    LateStarter.broken = 0
    batch, _ = rollout("LateStarter", off_policy=True, kwargs={"failing": 80}).collect(0)
    assert not batch.mask.any()
    assert batch.truncated is not None
    assert batch.truncated[:, 1::2].all()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("how", "words", "kind"),
    [
        ("reset", "no such scene", "by an error"),
        ("step", "no such joint", "by an error"),
        ("hang", r"within 0.1 s \(env.step_timeout_s\)", "by not returning in time"),
    ],
)
def test_an_environment_that_never_makes_a_step_is_given_up_after_a_few(
    layout: Layout, how: str, words: str, kind: str
) -> None:
    it = rollout("Dead", layout, kwargs={"how": how}, step_timeout_s=0.1)
    what = "reset" if how == "reset" else "step"
    output = rf"(?s)^broken_envs:Dead-v0: .*{words}, at\n  File .*never made a single step: 5 {what}s failed, "
    with pytest.raises(EnvFailureError, match=f"{output}the last one[ a-z0-4]* {kind}, and none went well"):
        it.collect(0)
    with pytest.raises(EnvFailureError, match=f"never made a single step: 4 {what}s failed"):
        it.evaluate(2)  # on sub-environments of its own, fewer of them


def test_max_failures_allows_fewer_failures() -> None:
    with pytest.raises(EnvFailureError, match="never made a single step: 2 steps failed"):
        rollout("Dead", kwargs={"how": "step"}, max_failures=1).collect(0)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("resumed", ["no", "checkpoint", "old checkpoint", "worker"])
def test_an_environment_that_made_steps_before_is_given_all_its_failures(
    layout: Layout, resumed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Wearing, "worn", False)
    it = rollout("Wearing", layout, max_failures=12)
    it.collect(0)
    if resumed != "no":
        state, it = it.state_dict(), rollout("Wearing", layout, max_failures=12)
        for worker in state["workers"] if resumed == "old checkpoint" else []:
            del worker["stepped"]
        if resumed == "worker":
            made[-1].skip_episodes(1)
        else:
            it.load_state_dict(state)
    Wearing.worn = True
    with pytest.raises(EnvFailureError, match=r"13 failed.*env.max_failures allows 12"):
        [it.collect(step) for step in range(1, 4)]


def test_a_checkpoint_from_before_the_first_step_has_none() -> None:
    it = rollout("Dead", kwargs={"how": "step"})
    state = it.state_dict()
    it.load_state_dict(state)
    with pytest.raises(EnvFailureError, match="never made a single step"):
        it.collect(0)


def test_failures_that_come_before_slower_successes_are_awaited() -> None:
    count = FailureCount(max_failures=100, num_envs=1, env_id="agents")
    count.expect_together(5)
    for _ in range(5):
        count.add("step", "failures", "the agent is broken")
    with pytest.raises(EnvFailureError, match="never made a single step: 6 steps failed"):
        count.add("step", "failures", "the agent is broken")
