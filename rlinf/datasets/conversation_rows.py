"""From rows of data files to conversations: column names, and what one row may not give twice or leave unread."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rlinf.base.json_text import listed_messages, parse_json
from rlinf.base.user_code import did_you_mean
from rlinf.data.picture_fields import PICTURE_MARK, field_pictures, with_pictures
from rlinf.data.pictures import PictureError, pictures_of
from rlinf.datasets.conversation_messages import (
    ConversationError,
    Message,
    messages_of,
    own_fields,
    text_message,
)
from rlinf.datasets.preference_columns import CHOSEN, REJECTED, rating_of, with_pair
from rlinf.datasets.transcripts import instructed_messages, rendered_messages, transcript_messages

MESSAGES = ("messages", "conversations", "conversation")
_TEXT = "text"
"""Read if it is a transcript, with the roles' names in it."""
IMAGES = ("images", "image")
PROMPTS = ("prompt", "question", "instruction", "problem", "query", "input")
MATERIAL = ("input", "context", "query")
"""Behind the prompt proper, on a line of its own: Alpaca's ``input``, Dolly's ``context``."""
RESPONSES = ("response", "completion", "output", "solution", "answer")
"""A row with a solution and an answer (NuminaMath, MATH-500) has the final answer alone in the latter."""
_REPEATED_IN_MESSAGES = ("prompt", "instruction", "input", "context")
"""If a row has whole messages, these columns must only repeat them; others are counted as unread."""
SYSTEM = ("system", "system_prompt")
HISTORY, TOOLS = "history", ("tools", "functions")
_ASSISTANT = "assistant"
_NAMES = frozenset(
    (*MESSAGES, *IMAGES, *PROMPTS, *MATERIAL, *RESPONSES, *SYSTEM, *TOOLS, _TEXT, HISTORY, CHOSEN, REJECTED)
)
"""Columns that are read, in any case where no other has the name."""
_TRANSCRIPTS = (*MESSAGES, _TEXT, "prompt", CHOSEN, REJECTED)
__all__ = ["Conversation", "ConversationError", "Message", "conversation_of", "pair_of"]


@dataclass(frozen=True)
class Conversation:
    """One row of a file."""

    location: str
    """`train.jsonl:17`."""
    messages: tuple[Message, ...]
    tools: tuple[Mapping[str, Any], ...] = ()
    """What the assistant may call, as a chat template takes it."""
    unread: tuple[str, ...] = ()
    """Columns that hold something and are not read; fields of messages as ``messages[].id``."""


@dataclass
class _Columns:
    """The columns of a row, and which of them were read."""

    location: str
    row: Mapping[Any, Any]
    folder: Path | None = None
    read: set[str] = field(default_factory=set)

    def take(self, names: Sequence[str]) -> Any:
        """Return the value of the first column of ``names`` that holds something; else a blank one, or None."""
        for name in names:
            if self.has(name):
                self.read.add(name)
                return self.row[name]
        return next((self.row[name] for name in names if self.row.get(name) is not None), None)

    def has(self, name: str) -> bool:
        value = self.row.get(name)
        return value is not None and value != [] and not (isinstance(value, str) and not value.strip())

    def unread(self) -> list[str]:
        return [str(name) for name in self.row if str(name) not in self.read and self.has(name)]

    def repeated(self, names: Sequence[str], messages: Sequence[Message]) -> None:
        """Count as read those of ``names`` whose words the conversation has anyway."""
        whole = _words("\n".join(message.content for message in messages))
        for name in names:
            value = self.row.get(name)
            if _are_messages(value):
                texts = [
                    message.content for message in messages_of(self.location, value, imitated=False, folder=self.folder)
                ]
            else:
                texts = [value] if isinstance(value, str) else []
            if texts and all(_words(text) in whole for text in texts):
                self.read.add(name)


def conversation_of(location: str, row: object, folder: Path | None = None) -> Conversation:
    """Build the conversation of a row, whose names of picture files start in ``folder``.

    Raises ConversationError if there is none, or a part of it would be left out.
    """
    if not isinstance(row, Mapping):
        raise ConversationError(f"{location}: a row must be an object, got {type(row).__name__}")
    columns = _columns(location, row, folder)
    listed = columns.take(MESSAGES)
    in_columns = all(any(columns.has(name) for name in names) for names in (PROMPTS, RESPONSES))
    if listed is None and not in_columns:
        listed = columns.take([name for name in (_TEXT, "prompt") if _is_conversation(columns.row.get(name))])
    if listed is None and columns.has("0"):
        # Messages in columns 0, 1, ...: a row that is a list, as tables have it.
        names = [str(number) for number in range(len(columns.row)) if columns.has(str(number))]
        columns.read |= set(names)
        listed = [columns.row[name] for name in names]
    if listed is not None:
        messages = messages_of(location, listed, folder=folder)
        _require_all_read(columns, messages, _REPEATED_IN_MESSAGES)
    elif not in_columns:
        raise _missing(columns, RESPONSES if any(map(columns.has, PROMPTS)) else PROMPTS)
    else:
        # Build the messages of a row with a prompt and a response.
        prompt, response = _prompt_messages(columns), columns.take(RESPONSES)
        if columns.row.get("label") is False:
            raise ConversationError(
                f"{location}: label is false, which marks a bad answer: leave such rows out to imitate"
            )
        messages = _joined(columns, prompt, response, "response", imitated=True)
    return _whole(columns, messages, listed if listed is not None else [])


def pair_of(location: str, row: object, folder: Path | None = None) -> tuple[Conversation, Conversation]:
    """Build the conversations that end in the chosen and in the rejected answer, which alone count.

    Raises ConversationError if a row has no two answers to one prompt.
    """
    try:
        row = with_pair(row) if isinstance(row, Mapping) else row
    except ValueError as error:
        raise ConversationError(f"{location}: {error}") from error
    both = [_columns(location, row, folder) for _ in range(2)] if isinstance(row, Mapping) else []
    if any(one.row.get(CHOSEN) is None or one.row.get(REJECTED) is None for one in both) or not both:
        columns = row if isinstance(row, Mapping) else {}
        known = ", ".join(map(str, columns)) if isinstance(row, Mapping) else type(row).__name__
        raise ConversationError(
            f"{location}: sft.loss: dpo reads pairs, with {CHOSEN} and {REJECTED}; the row has {known or 'no fields'}"
            f"{rating_of(columns)}"
        )
    chosen, rejected = (_preferred(columns, name) for columns, name in zip(both, (CHOSEN, REJECTED), strict=True))
    if chosen.messages[:-1] != rejected.messages[:-1]:
        raise ConversationError(f"{location}: {CHOSEN} and {REJECTED} answer different prompts")
    return chosen, rejected


def _columns(location: str, row: Mapping[Any, Any], folder: Path | None) -> _Columns:
    """Return the columns of a row, with messages that are written as text read as lists."""
    try:
        read = {name: listed_messages(value) for name, value in row.items()}
    except ValueError as error:
        raise ConversationError(f"{location}: {error}") from error
    known = {str(name).lower(): name for name in read if str(name).lower() in _NAMES and str(name).lower() not in read}
    read |= {lower: read.pop(name) for lower, name in known.items()}
    read |= {name: rendered_messages(read[name]) for name in (*MESSAGES, _TEXT) if name in read}
    read |= {name: transcript_messages(read[name]) for name in _TRANSCRIPTS if name in read}
    columns = _Columns(location, read, folder)
    answered, prompted = (any(map(columns.has, names)) for names in (RESPONSES, PROMPTS))
    instructed = (_TEXT, *(() if answered else ("prompt",)), *(() if prompted else (CHOSEN, REJECTED)))
    read |= {name: instructed_messages(read[name]) for name in instructed if name in read}
    return columns


def _prompt_messages(columns: _Columns) -> list[Message]:
    """Messages before the answer: system prompt, history, and the prompt with its material."""
    location = columns.location
    prompt = columns.take(PROMPTS)
    if isinstance(prompt, list):
        prompt = messages_of(location, prompt, imitated=False, folder=columns.folder)
    else:
        parts = [text_message(location, "user", prompt).content]
        for name in MATERIAL:
            if columns.has(name) and name not in columns.read:
                columns.read.add(name)
                words = text_message(location, "user", columns.row[name]).content
                if words.strip() not in parts[0]:
                    parts.append(words)
        prompt = [Message("user", "\n".join(parts), False)]
    _require_all_read(columns, prompt, (*PROMPTS, *MATERIAL))
    return [*_history(columns), *prompt]


def _history(columns: _Columns) -> list[Message]:
    """Earlier turns as context: LLaMA-Factory's ``history``, a list of [question, answer]."""
    turns = columns.take((HISTORY,)) or []
    pairs = isinstance(turns, list) and all(isinstance(turn, list) and len(turn) == 2 for turn in turns)
    if isinstance(turns, list) and _are_messages(turns):
        return messages_of(columns.location, turns, imitated=False, folder=columns.folder)
    if not pairs:
        raise ConversationError(f"{columns.location}: {HISTORY} must be a list of [question, answer] or of messages")
    return [
        text_message(columns.location, role, text, imitated=False)
        for turn in turns
        for role, text in zip(("user", _ASSISTANT), turn, strict=True)
    ]


def _require_all_read(columns: _Columns, messages: Sequence[Message], names: Sequence[str]) -> None:
    """Raise ConversationError if a column of ``names`` requests something that the messages do not have."""
    columns.repeated([*PROMPTS, *MATERIAL], messages)
    left = [name for name in names if columns.has(name) and name not in columns.read]
    if left:
        raise ConversationError(
            f"{columns.location}: the row has {left[0]} too, whose words are not in its "
            f"{' or '.join(sorted(columns.read)) or 'messages'}: join them, or take the column out"
        )


def _preferred(columns: _Columns, name: str) -> Conversation:
    """Build the conversation that ends in the answer ``name``."""
    location, answer = columns.location, columns.row[name]
    columns.read |= {CHOSEN, REJECTED}
    if not _is_whole(answer) and any(columns.has(listed) for listed in MESSAGES):
        listed = columns.take(MESSAGES)
        prompt = messages_of(
            location, listed, imitated=False, folder=columns.folder
        )  # LLaMA-Factory's pairs: all but the answer
        prompt = prompt[:-1] if prompt[-1].role == _ASSISTANT else prompt
    else:
        prompt = _prompt_messages(columns) if any(columns.has(column) for column in PROMPTS) else []
    if not prompt and not isinstance(answer, list):
        raise ConversationError(
            f"{location}: {name} is text, and the row has no prompt (one of {', '.join(PROMPTS)}): write the prompt "
            f"into a column of its own, or {name} as a list of messages"
        )
    joined = _joined(columns, prompt, answer, name, imitated=False)
    if joined[-1].role != _ASSISTANT:
        raise ConversationError(f"{location}: {name} ends with the {joined[-1].role}, not with an answer")
    last = joined[-1]
    messages = [*joined[:-1], Message(last.role, last.content, True, last.fields)]
    return _whole(columns, messages, answer if isinstance(answer, list) else [])


def _joined(columns: _Columns, prompt: list[Message], answer: Any, name: str, *, imitated: bool) -> list[Message]:
    """Join the prompt and the answer; if the answer is the whole conversation, it must contain the prompt."""
    location = columns.location
    if isinstance(answer, Mapping):
        answer = [answer]
    if not isinstance(answer, list):
        return [*prompt, text_message(location, _ASSISTANT, answer, imitated=imitated)]
    answered = messages_of(location, answer, imitated=imitated, folder=columns.folder)
    if answered[0].role == _ASSISTANT:
        return [*prompt, *answered]
    known = [(message.role, message.content.strip()) for message in answered]
    if any((message.role, message.content.strip()) not in known for message in prompt):
        raise ConversationError(
            f"{location}: {name} is a whole conversation, and its prompt is not the one in "
            f"{' or '.join(sorted(columns.read - {CHOSEN, REJECTED})) or 'the row'}: take one of the two out"
        )
    return answered


def _is_whole(answer: object) -> bool:
    """Whether a list of messages begins before the assistant's answer."""
    return _are_messages(answer) and messages_of("", answer, imitated=False)[0].role != _ASSISTANT


def _words(text: str) -> str:
    """``text`` with one blank for each run of white space."""
    return " ".join(text.split())


def _are_messages(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(message, Mapping) for message in value)


def _is_conversation(value: object) -> bool:
    """Whether a list of messages ends with an answer of the assistant."""
    return _are_messages(value) and messages_of("", value)[-1].role == _ASSISTANT


def _whole(columns: _Columns, messages: list[Message], listed: Any) -> Conversation:
    """Add the row's system prompt and tools to the conversation. Raises ConversationError if nothing is imitated."""
    location = columns.location
    system = columns.take(SYSTEM)
    if system:
        written = text_message(location, "system", system)
        if messages[0].role != "system":
            messages = [written, *messages]
        elif messages[0].content.strip() != written.content.strip():
            raise ConversationError(
                f"{location}: the row has a system prompt in a column and another one in its messages: take one out"
            )
    if not any(message.imitated for message in messages):
        known = dict.fromkeys(one.role for one in messages)
        hints = {role: did_you_mean(role, (_ASSISTANT,)) for role in known} | {_ASSISTANT: " (of weight 0)"}
        roles = [f"{role}{hints[role]}" for role in known]
        raise ConversationError(
            f"{location}: there is no answer of the assistant to imitate: the messages are of {', '.join(roles)}"
        )
    if messages[0].role == _ASSISTANT:
        raise ConversationError(f"{location}: the assistant speaks first: there is no prompt to answer")
    messages = with_column(location, messages, columns.take(IMAGES), columns.folder)
    # No policy of text can give an answer with a picture.
    if any(message.imitated and pictures_of(message.content) for message in messages):
        raise ConversationError(f"{location}: an answer of the assistant has a picture, and policies answer in text")
    tools = _tools(location, columns.take(TOOLS))
    columns.repeated([*RESPONSES, *MESSAGES], messages)
    fields = [f"messages[].{name}" for name in own_fields(listed)]
    return Conversation(location, tuple(messages), tools, (*columns.unread(), *fields))


def _tools(location: str, value: Any) -> tuple[Mapping[str, Any], ...]:
    """Descriptions of tools: a list of objects, or that list as JSON text; bare functions get their wrapping."""
    if isinstance(value, str):
        try:
            value = parse_json(value) if value.strip() else None
        except ValueError as error:
            raise ConversationError(f"{location}: tools is no valid JSON: {error}") from error
    if not value:
        return ()
    listed = value if isinstance(value, list) else [value]
    if not all(isinstance(tool, Mapping) for tool in listed):
        raise ConversationError(f"{location}: tools must be a list of objects with a name each")
    wrapped = [
        tool if isinstance(tool.get("function"), Mapping) else {"type": "function", "function": tool} for tool in listed
    ]
    if not all(isinstance(tool["function"].get("name"), str) for tool in wrapped):
        raise ConversationError(f"{location}: a description in tools has no name")
    return tuple(wrapped)


def _missing(columns: _Columns, names: Sequence[str]) -> ConversationError:
    with contextlib.suppress(ValueError):
        if {CHOSEN, REJECTED} <= with_pair(columns.row).keys():
            return ConversationError(
                f"{columns.location}: the row has a {CHOSEN} and a {REJECTED} answer: set sft.loss: dpo"
            )
    if blank := [name for name in names if name in columns.row]:
        return ConversationError(f"{columns.location}: {blank[0]} holds nothing: take the row out, or fill it in")
    fields = [f"{name}{did_you_mean(str(name), (*MESSAGES, *names))}" for name in columns.row]
    fix = ""
    if isinstance(columns.row.get(_TEXT), str):
        fix = f". Its {_TEXT} shows no roles that are known: write columns {PROMPTS[0]} and {RESPONSES[0]}"
    return ConversationError(
        f"{columns.location}: neither {' nor '.join(MESSAGES[:2])}, and none of {', '.join(names)}; the row has "
        f"{', '.join(fields) or 'no fields'}{fix}"
    )


def with_column(location: str, messages: Sequence[Message], value: Any, folder: Path | None) -> list[Message]:
    """Put the pictures of a column where messages have ``<image>``, or in front of the first message of the user.

    Names of picture files start in ``folder``.

    Raises:
        ConversationError: a picture cannot be read, or messages have ``<image>`` more or fewer times.
    """
    try:
        uris = field_pictures(value, folder)
        counts = [message.content.count(PICTURE_MARK) for message in messages]
        if not uris:
            return list(messages)
        if not any(counts):
            first = next((at for at, message in enumerate(messages) if message.role == "user"), 0)
            counts[first] = len(uris)
        if sum(counts) != len(uris):
            raise PictureError(
                f"the messages have {PICTURE_MARK} {sum(counts)} times, and the row has {len(uris)} pictures"
            )
        placed = []
        for message, count in zip(messages, counts, strict=True):
            own, uris = uris[:count], uris[count:]
            placed.append(replace(message, content=with_pictures(message.content, own)) if own else message)
        return placed
    except PictureError as error:
        raise ConversationError(f"{location}: {error}") from error
