"""Masks from info, a method or a part of the observation; the error for none lists what there is."""

from __future__ import annotations

import pytest

from rlinf.rollouts.vec_env.make_env import EnvArgumentsError, make_env
from rlinf.rollouts.wrappers import random_action
from rlinf.schema import EnvConfig


def made(source: str, **kwargs):
    return make_env(EnvConfig("masked_envs:Doors-v0", kwargs=kwargs, action_mask=source))


@pytest.mark.parametrize(("where", "source"), [("info", "legal"), ("method", "action_masks"), ("part", "legal")])
def test_the_mask_is_a_part_of_the_observation_and_random_actions_keep_to_it(where: str, source: str) -> None:
    env = made(source, where=where, steps=50)
    observation, _ = env.reset(seed=3)
    env.action_space.seed(0)
    for _ in range(50):
        assert env.observation_space.contains(observation)
        assert (observation["action_mask"] == env.unwrapped.opened).all()
        observation, *_ = env.step(random_action(env))
    assert set(observation) == ({"seen", "action_mask"} if where == "part" else {"observation", "action_mask"})


def test_parts_of_an_action_may_come_as_a_list() -> None:
    env = made("legal", parts=True)
    observation, _ = env.reset(seed=0)
    assert observation["action_mask"].tolist() == [*env.unwrapped.opened.astype(int).tolist(), 1, 0]
    env.action_space.seed(0)
    for _ in range(5):
        env.step(random_action(env))


def test_a_name_that_is_nowhere_is_an_error_that_lists_what_there_is() -> None:
    with pytest.raises(ValueError, match="no entry of its info, which has legal"):
        made("mask").reset(seed=0)


def test_no_legal_action_is_an_error_while_the_episode_goes_on() -> None:
    env = made("legal")
    env.unwrapped._open = lambda: (env.unwrapped.opened * 0.0, {"legal": [False] * 6})
    with pytest.raises(ValueError, match="allows no action"):
        env.reset(seed=0)


def test_continuous_actions_are_refused() -> None:
    with pytest.raises(EnvArgumentsError, match="needs discrete actions"):
        make_env(EnvConfig("Pendulum-v1", action_mask="legal"))
