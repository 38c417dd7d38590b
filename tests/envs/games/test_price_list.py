"""A question for a tool."""

from __future__ import annotations

import gymnasium
import pytest
from rlinf_envs.errors import SettingError
from rlinf_envs.tools.calls import written


def test_the_tool_knows_and_nobody_else() -> None:
    env = gymnasium.make("rlinf_envs:rlinf/PriceList-v0", things=3).unwrapped
    for seed in range(5):
        said, _ = env.reset(seed=seed)
        call = env.demonstrate(said)  # type: ignore[attr-defined]
        answer, reward, ended, _, info = env.step(call)
        assert (reward, ended, info["role"]) == (0.0, False, "tool")
        assert 10 <= int(answer) < 100
        assert env.step(env.demonstrate(answer))[1:3] == (1.0, True)  # type: ignore[attr-defined]
    env.reset(seed=0)
    assert env.step(written("price", {"thing": "gold"}))[0] == "unknown"
    assert env.step("no idea")[1:3] == (0.0, True)


def test_more_things_than_there_are_are_refused() -> None:
    with pytest.raises(SettingError, match="between 1 and 16"):
        gymnasium.make("rlinf_envs:rlinf/PriceList-v0", things=99)
