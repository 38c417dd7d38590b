"""Ids that no one registered yet: the message names the module that does, and how it is installed."""

from __future__ import annotations

import pytest

from rlinf.rollouts.vec_env import registered_by
from rlinf.rollouts.vec_env.make_env import EnvNotFoundError, make_env
from rlinf.schema import EnvConfig


@pytest.mark.parametrize(
    ("env_id", "installed", "advice"),
    [
        ("PongNoFrameskip-v4", False, "(pip install 'oneloop-rl[atari]', and write ale_py:PongNoFrameskip-v4)"),
        ("ALE/Pong-v5", True, "(write ale_py:ALE/Pong-v5)"),
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
