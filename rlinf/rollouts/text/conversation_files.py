"""Conversations to imitate from files: prompt/response pairs and chat messages, in the published layouts."""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlinf.errors import UserError
from rlinf.json_text import parse_json
from rlinf.own_code import did_you_mean, kind_of
from rlinf.packages import install_command

SUFFIXES = (".jsonl", ".ndjson", ".json", ".parquet")
MESSAGES = ("messages", "conversations")
PROMPTS = ("prompt", "question", "instruction", "problem", "input")
RESPONSES = ("response", "completion", "output", "answer")
CHOSEN, REJECTED = "chosen", "rejected"
_ASSISTANT = "assistant"
# ShareGPT's words for the roles that chat templates know.
_ROLES = {"human": "user", "gpt": "assistant", "bot": "assistant"}


class ConversationError(UserError):
    """A row that is no conversation; the message has its file and place."""


@dataclass(frozen=True)
class Message:
    """A message of one speaker."""

    role: str
    content: str
    imitated: bool
    """Whether the loss counts it: an answer of the assistant, unless its ``weight`` is 0."""


@dataclass(frozen=True)
class Conversation:
    """One row of a file."""

    place: str
    """`train.jsonl:17`."""
    messages: tuple[Message, ...]


def read_conversations(path: str) -> list[Conversation]:
    """All rows of a JSONL, JSON or Parquet file, or of all such files in a folder, in their order.

    A row is ``{"messages": [{"role", "content"}, ...]}`` (or ShareGPT's ``conversations`` of ``from`` and ``value``),
    or a prompt and a response (``prompt``/``question``/``instruction`` and ``response``/``completion``/``output``),
    each a text or a list of messages; only the response is imitated. Text is taken as it is, to the last space.

    Raises:
        ConversationError: a row is none of these, or has no answer of the assistant to imitate.
        UserError: there is no such file, or nothing in it.
    """
    found = [_conversation(place, row) for place, row in _rows(Path(path).expanduser())]
    if not found:
        raise UserError(f"{path} holds no conversations")
    return found


def read_answers(path: str, *, pairs: bool) -> list[tuple[Conversation, ...]]:
    """The rows of a file: one conversation each (:func:`read_conversations`), or two (:func:`read_pairs`)."""
    return [*read_pairs(path)] if pairs else [(one,) for one in read_conversations(path)]


def read_pairs(path: str) -> list[tuple[Conversation, Conversation]]:
    """(chosen, rejected) of all rows of such files that answer a prompt twice, in their order.

    A row is ``{"prompt", "chosen", "rejected"}``, each a text or a list of messages, or without a prompt ``chosen`` and
    ``rejected`` are whole conversations, of which the last turn alone is compared.

    Raises:
        ConversationError: a row has no two answers, or answers to different prompts.
        UserError: there is no such file, or nothing in it.
    """
    found = [_pair(place, row) for place, row in _rows(Path(path).expanduser())]
    if not found:
        raise UserError(f"{path} holds no pairs")
    return found


def _pair(place: str, row: object) -> tuple[Conversation, Conversation]:
    if not isinstance(row, Mapping) or row.get(CHOSEN) is None or row.get(REJECTED) is None:
        known = ", ".join(map(str, row)) if isinstance(row, Mapping) else type(row).__name__
        raise ConversationError(f"{place}: a pair has {CHOSEN} and {REJECTED}; the row has {known or 'no fields'}")
    chosen, rejected = (_preferred(place, row, name) for name in (CHOSEN, REJECTED))
    if chosen.messages[:-1] != rejected.messages[:-1]:
        raise ConversationError(f"{place}: {CHOSEN} and {REJECTED} answer different prompts")
    return chosen, rejected


def _preferred(place: str, row: Mapping[Any, Any], name: str) -> Conversation:
    """The conversation that ends in the answer ``name``, which alone counts."""
    if any(row.get(prompt) is not None for prompt in PROMPTS):
        prompt = _one_of(place, row, PROMPTS)
        return _conversation(place, {"prompt": prompt, "response": row[name]})
    messages = _messages(place, row[name], imitated=False)
    if messages[-1].role != "assistant":
        raise ConversationError(f"{place}: {name} ends with the {messages[-1].role}, not with an answer")
    last = Message("assistant", messages[-1].content, True)
    return _conversation(place, {"messages": [*map(_as_written, messages[:-1]), _as_written(last)]})


def _as_written(message: Message) -> dict[str, Any]:
    return {"role": message.role, "content": message.content, "weight": int(message.imitated)}


def _rows(path: Path) -> Iterator[tuple[str, object]]:
    if path.is_dir():
        files = sorted(file for file in path.rglob("*") if file.suffix in SUFFIXES)
        yield from itertools.chain.from_iterable(map(_rows, files))
    elif path.suffix == ".parquet":
        try:
            table = importlib.import_module("pyarrow.parquet").read_table(path)
        except ImportError as error:
            raise UserError(f"{path}: reading Parquet needs pyarrow: {install_command('datasets')}") from error
        yield from ((f"{path} row {number}", row) for number, row in enumerate(table.to_pylist()))
    elif path.suffix == ".json" and path.read_bytes().lstrip()[:1] == b"[":
        listed = _parsed(path.read_bytes(), str(path))
        yield from ((f"{path}[{number}]", row) for number, row in enumerate(listed if isinstance(listed, list) else []))
    elif path.suffix in SUFFIXES and path.is_file():
        for number, line in enumerate(path.read_bytes().split(b"\n"), start=1):
            if line.strip():
                yield f"{path}:{number}", _parsed(line, f"{path}:{number}")
    elif path.is_file():
        raise UserError(f"{path}: {path.suffix or 'a file without suffix'} is not read; write {' or '.join(SUFFIXES)}")
    else:
        raise UserError(f"{path}: there is no such file or folder of {', '.join(SUFFIXES)} files")


def _parsed(text: bytes, place: str) -> object:
    try:
        return parse_json(text)
    except ValueError as error:
        raise ConversationError(f"{place}: no valid JSON: {error}") from error


def _conversation(place: str, row: object) -> Conversation:
    if not isinstance(row, Mapping):
        raise ConversationError(f"{place}: a row must be an object, got {type(row).__name__}")
    listed = next((row[name] for name in MESSAGES if row.get(name) is not None), None)
    if listed is not None:
        messages = _messages(place, listed)
    else:
        prompt, response = (_one_of(place, row, names) for names in (PROMPTS, RESPONSES))
        asked = _messages(place, prompt, imitated=False) if isinstance(prompt, list) else [_text(place, "user", prompt)]
        has_success = (
            _messages(place, response) if isinstance(response, list) else [_text(place, "assistant", response)]
        )
        messages = [*asked, *has_success]
    if not any(message.imitated for message in messages):
        roles = [f"{role}{did_you_mean(role, (_ASSISTANT,))}" for role in dict.fromkeys(one.role for one in messages)]
        raise ConversationError(
            f"{place}: there is no answer of the assistant to imitate: the messages are of {', '.join(roles)}"
        )
    if messages[0].role == "assistant":
        raise ConversationError(f"{place}: the assistant speaks first: there is no prompt to answer")
    return Conversation(place, tuple(messages))


def _one_of(place: str, row: Mapping[Any, Any], names: Sequence[str]) -> object:
    for name in names:
        if row.get(name) is not None:
            return row[name]
    fields = [f"{field}{did_you_mean(str(field), (*MESSAGES, *names))}" for field in row]
    raise ConversationError(
        f"{place}: neither {' nor '.join(MESSAGES)}, and none of {', '.join(names)}; the row has "
        f"{', '.join(fields) or 'no fields'}"
    )


def _text(place: str, role: str, content: object, *, imitated: bool = True) -> Message:
    if not isinstance(content, str) or (role == "assistant" and not content.strip()):
        got = "" if isinstance(content, str) else f", not {kind_of(content)}"
        raise ConversationError(f"{place}: what the {role} says must be text that is not empty{got}")
    return Message(role, content, imitated and role == "assistant")


def _messages(place: str, listed: object, *, imitated: bool = True) -> list[Message]:
    if not isinstance(listed, Sequence) or isinstance(listed, str) or not listed:
        raise ConversationError(f"{place}: messages must be a list that is not empty")
    found: list[Message] = []
    for message in listed:
        if not isinstance(message, Mapping):
            raise ConversationError(f"{place}: a message must be an object with role and content")
        role = message.get("role", message.get("from"))
        if not isinstance(role, str):
            has = ", ".join(f"{field}{did_you_mean(str(field), ('role', 'content'))}" for field in message)
            raise ConversationError(f"{place}: message {len(found) + 1} has no role: it has {has or 'nothing'}")
        content = message.get("content", message.get("value"))
        counts = imitated and message.get("weight") != 0
        found.append(_text(place, _ROLES.get(role, role), content, imitated=counts))
    return found
