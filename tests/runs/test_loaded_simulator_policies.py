"""`policy.path` of simulators: an exported policy goes on in its environment, and is refused in any other."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from gymnasium import spaces
from simulator_runs import recipe, summary

from rlinf.base.errors import UserError
from rlinf.config import Config, ConfigErrors, load
from rlinf.models.actor_critic import ActorCritic, ActorCriticOptions
from rlinf.models.off_policy.soft_actor_critic import SoftActorCritic
from rlinf.train.assemble.simulator_policy import make_policy

BOX = spaces.Box(-1.0, 1.0, (3,), np.float32)
ARM = spaces.Box(-1.0, 1.0, (2,), np.float32)


def config_for(folder: Path, kind: str, *settings: str) -> Config:
    return load(recipe(folder / "run", kind), [f"policy.path={folder}", "policy.hidden_sizes=[64,64]", *settings])


@pytest.fixture
def exported(tmp_path: Path) -> Path:
    ActorCritic(BOX, ARM, ActorCriticOptions(hidden_sizes=(8,))).save_pretrained(str(tmp_path))
    return tmp_path


def test_a_run_goes_on_with_the_policy_of_another_one(tmp_path: Path) -> None:
    summary(tmp_path / "first", "chunks", 1)
    usual = ["policy.hidden_sizes=[64,64]", f"policy.path={tmp_path / 'first' / 'policy'}"]
    assert summary(tmp_path / "second", "chunks", 1, usual)["metrics"]["eval/return"] < 0
    with pytest.raises(UserError, match=r"(?s)its observation space is Box.*\(3,\).*CartPole-v1 is Box.*\(4,\)"):
        summary(tmp_path / "third", "ppo", 1, usual)
    with pytest.raises(UserError, match=r"decides on 4 actions at a time, and env.num_action_chunks is 2\. Set env"):
        summary(tmp_path / "fourth", "chunks", 1, [*usual, "env.num_action_chunks=2"])


@pytest.mark.parametrize(
    ("space", "arm", "words"),
    [
        (spaces.Box(-1.0, 1.0, (4,), np.float32), ARM, r"its observation space is Box.*\(3,\).*is Box.*\(4,\)"),
        (spaces.Box(0, 1, (3,), np.uint8), ARM, "its observation space is Box.*float32.*uint8"),
        (spaces.Dict({"at": BOX}), ARM, r"its observation space is Box.* of CartPole-v1 is missing"),
        (BOX, spaces.Discrete(2), r"its action space is Box.*Discrete\(2\)"),
        (BOX, spaces.Box(-2.0, 2.0, (2,), np.float32), r"its action space is Box\(-1.0.*Box\(-2.0"),
    ],
)
def test_the_leaf_that_differs_is_named(exported: Path, space: spaces.Space, arm: spaces.Space, words: str) -> None:
    config = config_for(exported, "ppo")
    make_policy(config, spaces.Box(-9.0, 9.0, (3,), np.float32), ARM)  # bounds of observations may be others
    with pytest.raises(UserError, match=f"policy.path: the policy in .*{words}"):
        make_policy(config, space, arm)


@pytest.mark.parametrize("kind", ["sac", "sac_chunks"])
def test_off_policy_policies_are_compared_too(tmp_path: Path, kind: str) -> None:
    chunk = 4 if kind == "sac_chunks" else 1
    SoftActorCritic(BOX, ARM, ActorCriticOptions(hidden_sizes=(8,), num_action_chunks=chunk)).save_pretrained(
        str(tmp_path)
    )
    make_policy(config_for(tmp_path, kind), BOX, ARM)
    with pytest.raises(UserError, match="its action space"):
        make_policy(config_for(tmp_path, kind), BOX, BOX)
    with pytest.raises(UserError, match=f"decides on {chunk} actions at a time"):
        make_policy(config_for(tmp_path, kind, "env.num_action_chunks=3"), BOX, ARM)


def test_a_folder_that_is_no_policy_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigErrors, match=r"holds no weights.*\n?.*RUN/policy"):
        config_for(tmp_path, "ppo")
    (tmp_path / "model.safetensors").touch()  # of something else
    with pytest.raises(UserError, match=r"no exported policy of policy.name actor_critic: no .*policy.json"):
        make_policy(config_for(tmp_path, "ppo"), BOX, ARM)
