"""Conversations in a few lines."""

from __future__ import annotations

import importlib

import pytest
from gymnasium.utils.env_checker import check_env
from rlinf_envs.dialogue import Dialogue, End, Reply


class Twice(Dialogue):
    answer: object = "again"

    def begin(self) -> str:
        self.answer = Reply("again", 0.25)
        return "write it twice"

    def reply(self, response: str) -> str | Reply | End:
        reply, self.answer = self.answer, End(1.0, extracted="twice")
        return reply  # type: ignore[return-value]


def test_replies_become_steps_of_gymnasium() -> None:
    env = Twice()
    assert env.reset(seed=0) == ("write it twice", {})
    assert env.step("a") == ("again", 0.25, False, False, {})
    assert env.step("b") == ("", 1.0, True, False, {"success": True, "extracted": "twice"})
    check_env(Twice(), skip_render_check=True)


def test_anything_else_is_an_error() -> None:
    env = Twice()
    env.reset()
    env.answer = 3
    with pytest.raises(TypeError, match=r"Twice\.reply returned 3; it returns a text, Reply or End"):
        env.step("a")
    with pytest.raises(NotImplementedError, match="Dialogue needs a method begin"):
        Dialogue().reset()


def test_the_earlier_name_of_a_reply_works_with_a_warning() -> None:
    module = importlib.import_module("rlinf_envs.dialogue")
    with pytest.warns(DeprecationWarning, match=r"^rlinf_envs\.dialogue\.\w+ is deprecated .* use Reply$"):
        assert getattr(module, "Say") is Reply  # noqa: B009
    with pytest.raises(AttributeError, match="no attribute 'Answer'"):
        module.Answer  # noqa: B018
