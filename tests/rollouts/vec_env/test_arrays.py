"""Batch environments whose arrays are torch tensors or speak DLPack: nothing is copied, and nothing else changes."""

from __future__ import annotations

import functools
import time
from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from rlinf.data.batch import Batch
from rlinf.models.actor_critic import ActorCritic, ActorCriticOptions
from rlinf.models.policy_requests import PolicyFacts, drive
from rlinf.rollouts.simulator.fragments import FragmentCollector
from rlinf.rollouts.simulator.records import RolloutPart
from rlinf.rollouts.vec_env.arrays import host_array, host_leaves, like_observations
from rlinf.rollouts.vec_env.make_env import make_env, native_entry_point
from rlinf.rollouts.vec_env.native import NativeVecEnv
from rlinf.rollouts.vec_env.sync import SyncVecEnv
from rlinf.rollouts.vec_env.vectorize import make_vec_env
from rlinf.schema import EnvConfig


class Capsule:
    """An array that speaks DLPack and nothing else, as JAX arrays do."""

    def __init__(self, values: np.ndarray) -> None:
        self.values = values

    def __dlpack__(self, **settings: Any) -> Any:
        return self.values.__dlpack__(**settings)

    def __dlpack_device__(self) -> Any:
        return self.values.__dlpack_device__()


class Points(VectorEnv):
    """Points on a line that move by their action, in torch: an episode is 4 steps, or ends beyond 1."""

    def __init__(self, num_envs: int, mode: AutoresetMode = AutoresetMode.SAME_STEP, final: str = "final_obs") -> None:
        self.num_envs, self.mode, self.final = num_envs, mode, final
        self.metadata = {"autoreset_mode": mode}
        self.single_observation_space = gymnasium.spaces.Box(-9, 9, (2,), np.float32)
        self.single_action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.state = torch.zeros(num_envs, 2)
        self.over = torch.zeros(num_envs, dtype=torch.bool)

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict]:
        chosen = torch.ones(self.num_envs, dtype=torch.bool)
        if options is not None:
            chosen = torch.from_numpy(options["reset_mask"])
        if seed is not None:
            self.draw = torch.Generator().manual_seed(seed)
        self.begin(chosen)
        return self.state, {}

    def begin(self, chosen: torch.Tensor) -> None:
        self.state[chosen, 0] = torch.rand(self.num_envs, generator=self.draw)[chosen]
        self.state[chosen, 1] = 0.0

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict]:
        assert isinstance(actions, torch.Tensor)
        late = self.over if self.mode is AutoresetMode.NEXT_STEP else torch.zeros_like(self.over)
        self.begin(late)
        self.state[:, 0] += torch.where(late, 0.0, actions[:, 0])
        self.state[:, 1] += torch.where(late, 0.0, 1.0)
        terminated, truncated = (self.state[:, 0] > 1.0) & ~late, (self.state[:, 1] >= 4) & ~late
        rewards, self.over = torch.where(late, 0.0, self.state[:, 0]), terminated | truncated
        info: dict[str, Any] = {"success": terminated.clone(), "_success": torch.ones_like(terminated)}
        if self.mode is AutoresetMode.SAME_STEP and bool(self.over.any()):
            info |= {self.final: self.state.clone(), "final_info": info}
            self.begin(self.over)
        return self.state, rewards, terminated, truncated & ~terminated, info


def points(num_envs: int, **settings: Any) -> VectorEnv:
    return Points(num_envs, **settings)


gymnasium.register("PointsPartial-v0", vector_entry_point=functools.partial(points))
gymnasium.register("PointsNamed-v0", vector_entry_point=f"{__name__}:points")


def fragment(env_id: str, num_envs: int = 3, steps: int = 9, **kwargs: Any) -> RolloutPart:
    options = EnvConfig(env_id, kwargs, vectorization="native")
    env = make_vec_env(options, num_envs)
    torch.manual_seed(0)
    policy = ActorCritic(env.observation_space, env.action_space, ActorCriticOptions(hidden_sizes=(4,)))
    collector, facts = FragmentCollector(env, range(num_envs), seed=0, num_steps=steps), PolicyFacts.of(policy)
    columns = collector.open(facts, (0,))
    drive(collector.fill(columns, 0), policy)
    return drive(collector.close(facts, columns, 0), policy)


def batch_of(part: RolloutPart) -> Batch:
    assert part.batch is not None
    return part.batch


@pytest.mark.parametrize("env_id", ["PointsPartial-v0", "PointsNamed-v0", "points"])
def test_every_way_to_name_a_batch_environment_gives_the_same_rollout(env_id: str) -> None:
    found, first = (batch_of(fragment(f"{__name__}:{name}")) for name in (env_id, "PointsPartial-v0"))
    assert native_entry_point(f"{__name__}:{env_id}") == f"{__name__}:points"
    assert torch.equal(found.inputs.observations["observation"], first.inputs.observations["observation"])
    assert torch.equal(found.rewards, first.rewards)


@pytest.mark.parametrize("final", ["final_obs", "final_observation"])
def test_every_autoreset_mode_gives_the_same_episodes(final: str) -> None:
    """Observations restart where an episode ended, and what a truncated one is valued by is its own last one."""
    parts = {
        mode: fragment(f"{__name__}:points", num_envs=1, steps=12, mode=mode, final=final) for mode in AutoresetMode
    }
    lengths = {mode: [record.length for record in part.episodes] for mode, part in parts.items()}
    for mode, part in parts.items():
        batch = batch_of(part)
        ages = batch.inputs.observations["observation"][0, :, 1]
        acted = batch.mask[0]
        assert all(length <= 4 for length in lengths[mode])
        assert ages[acted].max() <= 3
        assert int(acted.sum()) == (12 if mode is not AutoresetMode.NEXT_STEP else 12 - len(lengths[mode]))
        assert all(record.success_once is not None for record in part.episodes)
    assert lengths[AutoresetMode.SAME_STEP] == lengths[AutoresetMode.DISABLED]


def test_observations_stay_in_the_environment_s_memory() -> None:
    env = NativeVecEnv(EnvConfig(f"{__name__}:points", vectorization="native"), 4)
    env.reset(range(4), range(4))
    inner: Any = env._env
    assert env.observations["observation"].__array_interface__["data"][0] == inner.state.data_ptr()
    given = np.zeros((4, 1), np.float32)
    assert like_observations(given, inner.state).data_ptr() == given.__array_interface__["data"][0]
    env.step(range(4), given)
    assert env.observations["observation"].__array_interface__["data"][0] == inner.state.data_ptr()


def test_arrays_that_speak_dlpack_are_read_without_a_copy() -> None:
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    found = host_array(Capsule(values))
    assert found.__array_interface__["data"][0] == values.__array_interface__["data"][0]
    nested = host_leaves({"a": Capsule(values), "b": (torch.ones(2), values)})
    assert list(nested) == ["observation.a", "observation.b.0", "observation.b.1"]
    assert like_observations(values, {"a": Capsule(values)}) is values


def test_a_batch_function_is_a_single_environment_too() -> None:
    """It starts where its seed determines."""
    env = make_env(EnvConfig(f"{__name__}:points", max_episode_steps=3))
    starts = [env.reset(seed=seed)[0][0] for seed in (5, 6, 5)]
    assert starts[0] == starts[2] != starts[1]
    ends = []
    for _ in range(3):
        observation, _, terminated, truncated, info = env.step(np.full(1, -1.0, np.float32))
        ends.append((terminated, truncated, info["success"]))
    assert observation[1] == 3.0
    assert ends == [(False, False, False)] * 2 + [(False, True, False)]


def cpu_per_step(env: Any, num_envs: int, steps: int) -> float:
    """CPU-seconds of one step of one sub-environment, resets included."""
    everyone = list(range(num_envs))
    env.reset(everyone, everyone)
    began = time.process_time()
    for _ in range(steps):
        result = env.step(everyone, np.zeros((num_envs, 1), np.float32))
        over = np.nonzero(result.terminated | result.truncated)[0].tolist()
        env.reset(over, over)
    return (time.process_time() - began) / steps / num_envs


def test_four_thousand_sub_environments_step_together() -> None:
    part = fragment(f"{__name__}:points", num_envs=4096, steps=8)
    batch = batch_of(part)
    assert part.env_steps == int(batch.mask.sum()) == 4096 * 8
    assert batch.truncated is not None
    assert bool((batch.truncated | batch.terminated).any(1).all())
    options = EnvConfig(f"{__name__}:points", vectorization="native")
    together = cpu_per_step(NativeVecEnv(options, 4096), 4096, 12)
    alone = cpu_per_step(SyncVecEnv(replace(options, vectorization="sync"), 16), 16, 12)
    assert alone > 10 * together
