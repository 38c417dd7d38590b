"""Ids that no one registered yet: the message names the module that does, and how it is installed."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from rlinf.base.errors import UserError
from rlinf.base.packages import install_command
from rlinf.config.extras import Extra, simulator_extra
from rlinf.rollouts.vec_env import registered_by
from rlinf.rollouts.vec_env.make_env import EnvNotFoundError, make_env
from rlinf.rollouts.vec_env.registered_by import version_advice
from rlinf.schema import EnvConfig


@pytest.mark.parametrize(
    ("env_id", "installed", "advice"),
    [
        ("PongNoFrameskip-v4", False, "(pip install 'oneloop-rl[atari]', and write ale_py:PongNoFrameskip-v4)"),
        ("ALE/Pong-v5", True, "(write ale_py:ALE/Pong-v5)"),
        ("PandaReach-v1", False, "(install panda_gym, and write panda_gym:PandaReach-v3)"),
        ("FetchReach-v2", True, "(write gymnasium_robotics:FetchReach-v4)"),
        ("PandaReach-v3", False, "(install panda_gym, and write panda_gym:PandaReach-v3)"),
        ("AntMaze_UMaze-v5", True, "(write gymnasium_robotics:AntMaze_UMaze-v5)"),
        ("highway-fast-v0", False, "(install highway_env, and write highway_env:highway-fast-v0)"),
        ("dm_control/walker-walk-v0", True, "(write shimmy:dm_control/walker-walk-v0)"),
        ("CartPoel-v1", True, "did you mean CartPole-v1?"),
    ],
)
def test_an_id_of_a_package_names_it(
    env_id: str, installed: bool, advice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registered_by, "find_spec", lambda _name: object() if installed else None)
    with pytest.raises(EnvNotFoundError) as raised:
        make_env(EnvConfig(env_id))
    assert f"env.id '{env_id}' is not registered" in str(raised.value)
    assert advice in str(raised.value)


@pytest.mark.parametrize(
    ("env_id", "words"),
    [
        ("Hopper-v2", "gymnasium makes no Hopper-v2: write Hopper-v4 or Hopper-v5"),
        ("Ant-v3", "gymnasium makes no Ant-v3: write Ant-v4 or Ant-v5"),
        ("LunarLander-v2", "gymnasium makes no LunarLander-v2: write LunarLander-v3"),
        ("CartPole-v7", "gymnasium makes no CartPole-v7: write CartPole-v0 or CartPole-v1"),
        ("HalfCheetah-v5", ""),
    ],
)
def test_a_version_that_is_not_made_is_answered_with_those_that_are(env_id: str, words: str) -> None:
    assert version_advice(env_id) == words
    extra = simulator_extra(env_id)
    assert extra is None or extra.fix == install_command(extra.name) + (f"; and {words}" if words else "")
    if words:
        with pytest.raises(UserError, match=words):
            make_env(EnvConfig(env_id))


def test_an_id_without_a_version_needs_the_same_extra() -> None:
    assert simulator_extra("Hopper") == Extra("mujoco", "env.id: Hopper", "Hopper")
    assert simulator_extra("Ants-v0") is None


@pytest.mark.parametrize("registry", [{"Fishing-v1": None}, SimpleNamespace(env_specs={"Fishing-v1": None})])
def test_an_id_of_gyms_own_registry_is_called_that(registry: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gym.envs.registration", SimpleNamespace(registry=registry))
    with pytest.raises(EnvNotFoundError, match="'Fishing-v1' is registered with gym: gymnasium has replaced it"):
        make_env(EnvConfig("Fishing-v1"))
