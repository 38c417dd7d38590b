"""Demonstrations of environments: a prompt, and the texts of policy and environment after it, in turn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from rlinf.data.pictures import observed


class Observation(NamedTuple):
    """An environment's words in between, and their role in the chat template."""

    text: str
    role: str = "user"


@dataclass(frozen=True)
class Demonstration:
    """A correct conversation; ``observations`` are the environment's answers to all ``responses`` but the last."""

    prompt: str
    responses: tuple[str, ...]
    observations: tuple[Observation, ...] = ()
    answer: str = ""
    """The reference answer, if the environment gives one."""

    @classmethod
    def of(cls, value: Any) -> Demonstration:
        """Read what an environment gives: this, or (prompt, response), or a prompt with a list of turns.

        The list is (prompt, [response, observation, response, ...]) of a conversation that ends with a response."""
        if isinstance(value, cls):
            return value
        prompt, responses = value
        if isinstance(responses, list):
            return cls(
                observed(prompt), tuple(responses[::2]), tuple(Observation(observed(one)) for one in responses[1::2])
            )
        return cls(observed(prompt), (str(responses),))

    @property
    def text(self) -> str:
        """Everything after the prompt in one text, a line or more for each turn."""
        return "\n".join(text for text, _ in self.turns)

    @property
    def turns(self) -> list[tuple[str, bool]]:
        """Everything after the prompt, in order: a text, and whether it is the policy's."""
        texts: list[tuple[str, bool]] = []
        for index, response in enumerate(self.responses):
            texts.append((response, True))
            if index < len(self.observations):
                texts.append((self.observations[index].text, False))
        return texts
