"""Vector implementations of an environment's own: every way to reset itself, and none is guessed."""

from __future__ import annotations

import functools
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from rlinf.base.errors import UserError
from rlinf.models.actor_critic import ActorCritic, ActorCriticOptions
from rlinf.models.policy_requests import PolicyFacts, drive
from rlinf.rollouts.simulator.fragments import FragmentCollector
from rlinf.rollouts.simulator.records import RolloutPart
from rlinf.rollouts.vec_env.make_env import native_entry_point
from rlinf.rollouts.vec_env.native import NativeVecEnv
from rlinf.schema import EnvConfig


class Count(gymnasium.Env):
    """Counts its steps from 0, is truncated at 3 and solved there; the first action of an episode is free."""

    observation_space = gymnasium.spaces.Box(0, 9, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        self.count = 0
        return self.observation(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        self.count += 1
        return self.observation(), float(self.count), False, self.count == 3, {"success": self.count == 3}

    def observation(self) -> Any:
        return np.full(1, self.count, np.float32)


class Unsaid(SyncVectorEnv):
    """Does not declare how it resets."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.metadata = {name: value for name, value in self.metadata.items() if name != "autoreset_mode"}


class Silent(SyncVectorEnv):
    """Resets in the same step and throws the last observation away."""

    def step(self, actions: Any) -> Any:
        *parts, info = super().step(actions)
        info.pop("final_obs", None)
        return *parts, info


class Changed(SyncVectorEnv):
    """Gives what is the same in another form: ``change`` maps the five parts of a step to others."""

    def __init__(self, *args: Any, change: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.change = change

    def step(self, actions: Any) -> Any:
        return self.change(*super().step(actions))


def whole_numbers(seen: Any, rewards: Any, ends: Any, cuts: Any, info: Any) -> Any:
    return seen, rewards.astype(np.int32), ends.astype(np.int64), cuts.astype(np.float32), info


def columns(seen: Any, rewards: Any, ends: Any, cuts: Any, info: Any) -> Any:
    return seen, rewards[:, None], ends[:, None].tolist(), cuts[:, None], info


def dictionaries(seen: Any, rewards: Any, ends: Any, cuts: Any, info: Any) -> Any:
    if "final_info" in info:
        reported = zip(info["final_info"]["success"].tolist(), (ends | cuts).tolist(), strict=True)
        info = {
            "final_obs": info["final_obs"],
            "final_info": [{"success": one} if over else None for one, over in reported],
        }
    return seen, rewards, ends, cuts, info


def without_final_info(seen: Any, rewards: Any, ends: Any, cuts: Any, info: Any) -> Any:
    return seen, rewards, ends, cuts, {**info.pop("final_info", {}), **info}


def counting(num_envs: int, *, kind: Any = SyncVectorEnv, mode: AutoresetMode = AutoresetMode.SAME_STEP) -> Any:
    return kind([Count] * num_envs, autoreset_mode=mode)


for _mode in AutoresetMode:
    gymnasium.register(f"Count{_mode.name}-v0", Count, vector_entry_point=functools.partial(counting, mode=_mode))
for _kind in (Unsaid, Silent):
    gymnasium.register(f"{_kind.__name__}-v0", Count, vector_entry_point=functools.partial(counting, kind=_kind))


for _change, _mode in (
    (whole_numbers, AutoresetMode.SAME_STEP),
    (whole_numbers, AutoresetMode.NEXT_STEP),
    (columns, AutoresetMode.SAME_STEP),
    (dictionaries, AutoresetMode.SAME_STEP),
    (without_final_info, AutoresetMode.SAME_STEP),
):
    _make = functools.partial(counting, kind=functools.partial(Changed, change=_change), mode=_mode)
    gymnasium.register(f"Count_{_change.__name__}_{_mode.name}-v0", Count, vector_entry_point=_make)


def options(name: str) -> EnvConfig:
    return EnvConfig(f"{__name__}:{name}-v0", vectorization="native")


def fragment(name: str) -> RolloutPart:
    env = NativeVecEnv(options(name), 2)
    policy = ActorCritic(env.observation_space, env.action_space, ActorCriticOptions(hidden_sizes=(4,)))
    collector, facts = FragmentCollector(env, range(2), seed=0, num_steps=8), PolicyFacts.of(policy)
    columns = collector.open(facts, (0,))
    drive(collector.fill(columns, 0), policy)
    return drive(collector.close(facts, columns, 0), policy)


def test_a_partial_names_the_function_that_it_calls() -> None:
    assert native_entry_point(options("CountDISABLED").id) == f"{__name__}:counting"


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.DISABLED])
def test_episodes_are_those_of_single_environments(mode: AutoresetMode) -> None:
    part = fragment(f"Count{mode.name}")
    batch = part.batch
    assert batch.mask.all()
    assert batch.inputs.observations["observation"][0, :, 0].tolist() == [0, 1, 2, 0, 1, 2, 0, 1]
    assert batch.rewards[0].tolist() == [1, 2, 3, 1, 2, 3, 1, 2]
    assert batch.truncated is not None
    assert batch.truncated[0].nonzero()[:, 0].tolist() == [2, 5]
    assert [(record.total, record.success_once) for record in part.episodes] == [(6.0, True)] * 4


def test_a_reset_with_a_step_of_its_own_is_masked() -> None:
    batch = fragment("CountNEXT_STEP").batch
    assert batch.mask[0].tolist() == [True, True, True, False] * 2
    assert batch.inputs.observations["observation"][0, :, 0].tolist() == [0, 1, 2, 3] * 2


@pytest.mark.parametrize("change", ["whole_numbers", "columns", "dictionaries", "without_final_info"])
def test_flags_and_rewards_in_any_form_are_the_same_episodes(change: str) -> None:
    part, plain = fragment(f"Count_{change}_SAME_STEP"), fragment("CountSAME_STEP")
    for name in ("mask", "rewards", "truncated"):
        assert torch.equal(getattr(part.batch, name), getattr(plain.batch, name)), name
    seen = part.batch.inputs.observations["observation"]
    assert torch.equal(seen, plain.batch.inputs.observations["observation"])
    assert [(record.total, record.success_once) for record in part.episodes] == [(6.0, True)] * 4


def test_whole_numbers_do_not_select_rows_where_a_reset_takes_a_step() -> None:
    batch, plain = fragment("Count_whole_numbers_NEXT_STEP").batch, fragment("CountNEXT_STEP").batch
    assert torch.equal(batch.mask, plain.mask)
    assert torch.equal(batch.rewards, plain.rewards)


def wrong(seen: Any, rewards: Any, ends: Any, cuts: Any, info: Any, *, kind: str) -> Any:
    changed: dict[str, Any] = {
        "rewards": (seen, rewards[:1], ends, cuts, info),
        "parts": (seen, rewards, ends | cuts, info),
        "pixels": ((seen + 0.5).astype(np.float64) * np.inf, rewards, ends, cuts, info),
        "entries": ({"state": seen}, rewards, ends, cuts, info),
        "success": (seen, rewards, ends, cuts, {**info, "success": np.array(["False", "False"])}),
    }
    return changed[kind]


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("rewards", r"rewards of shape \[1\], and one for each of the 2"),
        ("parts", "4 values instead of the 5"),
        ("entries", "lacks observation and has observation.state"),
        ("pixels", "observation.*= inf"),
        ("success", "success.*'False', which is neither true nor false"),
    ],
)
def test_what_no_vector_env_may_give_is_named(kind: str, words: str) -> None:
    make = functools.partial(counting, kind=functools.partial(Changed, change=functools.partial(wrong, kind=kind)))
    gymnasium.register("Wrong-v0", Count, vector_entry_point=functools.partial(make, mode=AutoresetMode.NEXT_STEP))
    try:
        env = NativeVecEnv(options("Wrong"), 2)
        env.reset([0, 1], [0, 0])
        with pytest.raises(UserError, match=words):
            env.step([0, 1], np.zeros(2, np.int64))
    finally:
        del gymnasium.registry["Wrong-v0"]


def test_the_last_observation_of_a_truncated_episode_is_the_one_that_is_valued() -> None:
    env = NativeVecEnv(options("CountSAME_STEP"), 2)
    env.reset([0, 1], [0, 0])
    seen = []
    for _ in range(4):
        over = np.nonzero(env.step([0, 1], np.zeros(2, np.int64)).truncated)[0].tolist()
        seen.append(env.observations["observation"][:, 0].tolist())
        env.reset(over, over)
    assert seen == [[1, 1], [2, 2], [3, 3], [1, 1]]


def test_what_does_not_declare_how_it_resets_is_refused() -> None:
    with pytest.raises(UserError, match=r"Unsaid.*does not declare how it resets.*SAME_STEP.*env\.vectorization: sync"):
        NativeVecEnv(options("Unsaid"), 2)
    with pytest.raises(UserError, match=r"final_obs.*env\.vectorization: sync"):
        fragment("Silent")
