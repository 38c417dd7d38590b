"""Conversations in a few lines."""

from __future__ import annotations

import pytest
from gymnasium.utils.env_checker import check_env
from rlinf_envs.dialogue import Dialogue, End, Say


class Twice(Dialogue):
    answer: object = "again"

    def begin(self) -> str:
        self.answer = Say("again", 0.25)
        return "say it twice"

    def reply(self, response: str) -> str | Say | End:
        said, self.answer = self.answer, End(1.0, extracted="twice")
        return said  # type: ignore[return-value]


def test_what_is_said_becomes_steps_of_gymnasium() -> None:
    env = Twice()
    assert env.reset(seed=0) == ("say it twice", {})
    assert env.step("a") == ("again", 0.25, False, False, {})
    assert env.step("b") == ("", 1.0, True, False, {"success": True, "extracted": "twice"})
    check_env(Twice(), skip_render_check=True)


def test_anything_else_is_an_error() -> None:
    env = Twice()
    env.reset()
    env.answer = 3
    with pytest.raises(TypeError, match=r"Twice\.reply returned 3; it returns a text, Say or End"):
        env.step("a")
    with pytest.raises(NotImplementedError, match="Dialogue needs a method begin"):
        Dialogue().reset()
