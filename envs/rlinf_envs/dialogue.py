"""A conversation as an ordinary gymnasium environment: write its first prompt, and the answer to each response.

    class Capital(Dialogue):
        def begin(self) -> str:
            return "Which city is the capital of France?"

        def reply(self, response: str) -> str | End:
            return End(1.0) if "Paris" in response else "No. Try again."

``env.id: "my_module:Capital"`` trains it: each conversation has an object of its own, so attributes are its
state, and ``self.np_random`` is seeded by its task.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import gymnasium

from rlinf.base.deprecation import deprecate
from rlinf.data.pictures import observed
from rlinf_envs.spaces import FreeText
from rlinf_envs.tools.toolbox import Toolbox, ToolSetting


@dataclass(frozen=True)
class Reply:
    """An answer to a response that does not end the conversation, and the reward of that response."""

    message: Any
    """A text, or a picture, or a list of texts and pictures (:func:`rlinf.data.pictures.observed`)."""
    reward: float = 0.0


@dataclass(frozen=True)
class End:
    """The end of a conversation, what the last response earns, and whether the task is solved."""

    reward: float = 0.0
    success: bool | None = None
    """None: where the last response earns something."""
    extracted: str | None = None
    """The final answer as it was found, for people who read the samples."""


class Dialogue(gymnasium.Env[str, str]):
    """Subclasses write :meth:`begin` and :meth:`reply`; ``demonstrate(observation) -> response`` is an expert for a
    warm start, ``max_turns`` (optional) how many responses it may take."""

    tools: Sequence[ToolSetting] = ()
    """What the policy may call (see :mod:`rlinf_envs.tools.toolbox`), methods of the object included. Tools answer the
    calls of a response; :meth:`reply` reads responses without calls."""

    metadata: ClassVar[dict[str, Any]] = {"render_modes": []}  # type: ignore[misc]  # gymnasium's, of each instance
    observation_space = FreeText()
    action_space = FreeText()

    @cached_property
    def _toolbox(self) -> Toolbox | None:
        return Toolbox(self.tools) if self.tools else None

    @property
    def tool_schemas(self) -> list[dict[str, Any]]:
        """The tools as a chat template takes them."""
        return [] if self._toolbox is None else self._toolbox.schemas

    def begin(self) -> Any:
        """Return the first prompt; every random draw comes from ``self.np_random``.

        A text, or a list or mapping of texts and pictures (:func:`rlinf.data.pictures.observed`).
        """
        raise NotImplementedError(f"{type(self).__name__} needs a method begin() that returns the first prompt")

    def reply(self, response: str) -> str | Reply | End:
        """Return the answer to ``response``, or the end."""
        raise NotImplementedError(f"{type(self).__name__} needs a method reply(response)")

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        prompt = self.begin()
        if self._toolbox is not None:
            self._toolbox.begin(0, observed(prompt))
        return prompt, {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Send one response to the conversation.

        Raises:
            TypeError: :meth:`reply` returned an object of another type."""
        answered = None if self._toolbox is None else self._toolbox.answer(0, action)
        if answered is not None:
            return answered, 0.0, False, False, {"role": "tool"}
        reply = self.reply(action)
        if isinstance(reply, str):
            reply = Reply(reply)
        if isinstance(reply, Reply):
            return reply.message, float(reply.reward), False, False, {}
        if not isinstance(reply, End):
            raise TypeError(f"{type(self).__name__}.reply returned {reply!r:.80}; it returns a text, Reply or End")
        success = reply.reward > 0 if reply.success is None else reply.success
        return "", float(reply.reward), True, False, {"success": success, "extracted": reply.extracted}


def __getattr__(name: str) -> Any:
    if name == "Say":
        deprecate(f"{__name__}.{name}", "Reply", removed_in="0.3")
        return Reply
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
