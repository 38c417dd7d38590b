"""The responses of an evaluation in a file: to read, or as rows of `sft.data` (rejection sampling)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlinf.base.durable import write_atomically
from rlinf.base.errors import UserError
from rlinf.config import Config
from rlinf.data.pictures import pictures_of, pieces
from rlinf.rollouts.text.conversation import Row
from rlinf.schema.derived import is_agent

Message = Mapping[str, Any]


@dataclass(frozen=True)
class GradedResponse:
    """A response of an evaluation, with the conversation that it belongs to."""

    task: int
    messages: Sequence[Message]
    """From the system prompt to the policy's last words, as `sft.data` reads them. Without a chat template the first
    one is the whole prompt."""
    answer: str
    """The reference answer."""
    verdict: str
    reward: float
    tokens: int
    cut: bool
    """The limit on tokens ended it, not the policy."""
    tools: Sequence[Mapping[str, Any]] = ()
    """What the chat template describes to the policy."""

    @classmethod
    def of(cls, row: Row, opening: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> GradedResponse:
        """Collect what is known of a conversation whose first prompt has the messages ``opening``."""
        turns = [{"role": turn.role or _PLAIN[turn.speaker], "content": turn.text} for turn in row.turns]
        return cls(
            row.task_id,
            [{**message, "content": _content(message["content"])} for message in [*opening, *turns]],
            row.answer,
            row.verdict,
            row.total_reward,
            len(row.tokens),
            row.cut_by_length,
            tools,
        )

    @property
    def line(self) -> str:
        """The response as a row of JSON."""
        tools = {"tools": self.tools} if self.tools else {}
        grade = {"answer": self.answer, "verdict": self.verdict, "reward": self.reward}
        length = {"tokens": self.tokens, "cut": self.cut}
        return json.dumps({"messages": self.messages, **tools, **grade, **length}, ensure_ascii=False)


_PLAIN = {"policy": "assistant", "environment": "user"}
"""Roles of the turns of plain text, which has none."""


def _content(text: str) -> str | list[dict[str, str]]:
    """Return the words of a message; with pictures in them as a list of parts."""
    if not pictures_of(text):
        return text
    parts = [
        {"type": "image", "url": piece} if number % 2 else {"type": "text", "text": piece}
        for number, piece in enumerate(pieces(text))
    ]
    return [part for part in parts if part.get("text") != ""]


@dataclass(frozen=True)
class ResponseFiles:
    """JSONL files that an evaluation of a language model writes its responses to."""

    responses: Path | None = None
    """For all of them."""
    correct: Path | None = None
    """For the correct ones that the policy itself ended; equal ones of a task once."""

    @property
    def _named(self) -> list[tuple[str, Path]]:
        both = {"--responses": self.responses, "--correct": self.correct}
        return [(option, path) for option, path in both.items() if path is not None]

    def require(self, config: Config) -> None:
        """Raise UserError, before anything starts, if the run has no such responses or a file can't be written."""
        for option, path in self._named:
            if config.facts.run_kind != "text":
                raise UserError(f"{option} is for language models: episodes of simulators are saved by rlinf record")
            if is_agent(config.env.id):
                raise UserError(f"{option}: prompts of an agent are its own, and are not kept as messages")
            if path.is_dir():
                raise UserError(f"{option} {path} is a folder: name a file in it, {path / 'responses.jsonl'}")
            if not path.parent.is_dir():
                raise UserError(f"{option} {path}: there is no folder {path.parent}")

    def write(self, responses: Iterable[GradedResponse]) -> Iterator[str]:
        """Write the files; yield a sentence about each."""
        every = list(responses) if self._named else []
        for option, path in self._named:
            only_correct = option == "--correct"
            rows = list(_correct(every)) if only_correct else every
            write_atomically(path, "".join(f"{one.line}\n" for one in rows))
            kind = "correct responses" if only_correct else "responses"
            yield f"{len(rows):,} {kind} to {len({one.task for one in rows}):,} tasks are in {path}"


NO_FILES = ResponseFiles()


def _correct(responses: Sequence[GradedResponse]) -> Iterator[GradedResponse]:
    """Select what rejection sampling learns from (arXiv:2308.01825): correct responses, each of a task once."""
    seen: set[tuple[int, str]] = set()
    for one in responses:
        key = (one.task, json.dumps(one.messages))
        if one.verdict == "correct" and not one.cut and key not in seen:
            seen.add(key)
            yield one
