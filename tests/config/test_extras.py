"""Simulators that are not installed: the message names the extra, and the package has the extra."""

from __future__ import annotations

import importlib.util
import tomllib
from pathlib import Path

import pytest

from rlinf.config import ConfigErrors, load_mapping
from rlinf.config.extras import MODULES, simulator_extra

PROJECT = Path(__file__).parents[2] / "pyproject.toml"


@pytest.mark.parametrize(
    ("env_id", "extra"),
    [
        ("HalfCheetah-v5", "mujoco"),
        ("rlinf_envs:rlinf/MetaWorld-v0", "metaworld"),
        ("rlinf_envs:rlinf/MiniGrid-v0", "minigrid"),
        ("rlinf_envs:rlinf/ManiSkill-v0", "maniskill"),
        ("gymnasium_robotics:FetchReachDense-v4", "robotics"),
        ("LunarLander-v3", "box2d"),
    ],
)
def test_an_id_that_names_what_it_needs(env_id: str, extra: str) -> None:
    found = simulator_extra(env_id)
    assert found is not None
    assert found.name == extra
    assert found.fix == f"pip install 'oneloop-rl[{extra}]'"


def test_classic_control_needs_no_extra() -> None:
    sections = {"env": {"id": "CartPole-v1"}, "policy": {"name": "actor_critic"}, "algorithm": {"group_size": 4}}
    assert list(load_mapping(sections, source="test").extras) == []


def test_every_extra_is_one_of_the_package() -> None:
    extras = tomllib.loads(PROJECT.read_text())["project"]["optional-dependencies"]
    assert set(MODULES) <= set(extras)


@pytest.mark.skipif(importlib.util.find_spec("robosuite") is not None, reason="robosuite is installed here")
def test_a_simulator_with_clashing_pins_is_sent_to_its_own_environment() -> None:
    sections = {
        "env": {"id": "rlinf_envs:rlinf/Robosuite-v0"},
        "policy": {"name": "actor_critic"},
        "algorithm": {"group_size": 4},
    }
    with pytest.raises(ConfigErrors, match=r"make venvs/robosuite, then env\.isolation: process"):
        load_mapping(sections, source="test")
    isolated = {**sections, "env": {**sections["env"], "isolation": "process"}}
    assert list(load_mapping(isolated, source="test").extras) == []
    wrong = {**sections, "env": {**sections["env"], "isolation": "process", "python": "nowhere/python"}}
    with pytest.raises(ConfigErrors, match="is no program that can be started"):
        load_mapping(wrong, source="test")
    native = {**sections, "env": {**sections["env"], "isolation": "process", "vectorization": "native"}}
    with pytest.raises(ConfigErrors, match="cannot be isolated"):
        load_mapping(native, source="test")
