"""Messages of conversations as files have them: OpenAI's, ShareGPT's and LLaMA-Factory's fields and roles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlinf.base.errors import UserError
from rlinf.base.json_text import json_or_text
from rlinf.base.user_code import did_you_mean, kind_of
from rlinf.data.picture_fields import content_text
from rlinf.data.pictures import PictureError

_ASSISTANT = "assistant"
# The words of ShareGPT, LLaMA-Factory, LangChain and Gemma for the roles that chat templates have.
_ROLES = {
    **dict.fromkeys(("gpt", "bot", "chatbot", "chatgpt", "bing", "bard", "ai", "model"), _ASSISTANT),
    **{"human": "user", "prompter": "user", "observation": "tool", "function": "tool"},
}
_CHAT_ROLES = ("system", "developer", "user", _ASSISTANT, "tool")
_CALL_ROLE = "function_call"
_ROLE, _CONTENT = ("role", "from"), ("content", "value")
_COUNTS = ("weight", "train", "loss")
_CALLS = ("tool_calls", "function_call")
_THOUGHTS = ("reasoning_content", "reasoning", "thinking")
_TEMPLATE = ("name", "tool_call_id")
_READ = frozenset({*_ROLE, *_CONTENT, *_COUNTS, *_CALLS, *_THOUGHTS, *_TEMPLATE})


class ConversationError(UserError):
    """A row that is no conversation; the message has its file and line."""


@dataclass(frozen=True)
class Message:
    """A message of one speaker."""

    role: str
    content: str
    imitated: bool
    """Whether the loss counts it: an answer of the assistant, unless its ``weight`` is 0."""
    fields: Mapping[str, Any] = field(default_factory=dict)
    """What the chat template gets besides: ``tool_calls``, ``reasoning_content``, ``name``, ``tool_call_id``."""

    @property
    def calls(self) -> Sequence[Mapping[str, Any]]:
        """The calls of tools in it."""
        return self.fields.get("tool_calls", ())

    @property
    def thoughts(self) -> str:
        """Its ``reasoning_content``."""
        return str(self.fields.get(_THOUGHTS[0], ""))

    def for_template(self) -> dict[str, Any]:
        """Return the message as a chat template takes it."""
        return {"role": self.role, "content": self.content, **self.fields}


def text_message(location: str, role: str, content: object, *, imitated: bool = True) -> Message:
    """Build a message of words alone, or of a whole number, which tables have as such.

    Raises ConversationError if ``content`` is neither, or an empty answer.
    """
    if isinstance(content, int) and not isinstance(content, bool):
        content = str(content)
    if not isinstance(content, str) or (role == _ASSISTANT and not content.strip()):
        got = "" if isinstance(content, str) else f", not {kind_of(content)}"
        raise ConversationError(f"{location}: the content of the {role} must be text that is not empty{got}")
    try:
        content.encode()
    except UnicodeEncodeError as error:
        code = f"\\u{ord(content[error.start]):04x}"
        message = f"{location}: the content of the {role} has half a character ({code}, a lone surrogate)"
        raise ConversationError(f"{message} at {error.start}") from error
    return Message(role, content, imitated and role == _ASSISTANT)


def messages_of(location: str, listed: object, *, imitated: bool = True, folder: Path | None = None) -> list[Message]:
    """Read the messages of a list, whose names of picture files start in ``folder``.

    Raises ConversationError if one has no role, or content that cannot be read.
    """
    if not isinstance(listed, Sequence) or isinstance(listed, str) or not listed:
        raise ConversationError(f"{location}: messages must be a list that is not empty")
    return [_message(location, number, message, imitated, folder) for number, message in enumerate(listed, start=1)]


def own_fields(listed: object) -> list[str]:
    """Fields of messages that hold something and are not read."""
    messages = listed if isinstance(listed, list) else []
    names = (
        name for message in messages if isinstance(message, Mapping) for name, value in message.items() if value
    )  # fmt: skip
    return [str(name) for name in dict.fromkeys(names) if name not in _READ]


def _message(location: str, number: int, message: object, imitated: bool, folder: Path | None) -> Message:
    if not isinstance(message, Mapping):
        raise ConversationError(f"{location}: a message must be an object with role and content")
    role = next((message[name] for name in _ROLE if message.get(name) is not None), None)
    if not isinstance(role, str):
        has = ", ".join(f"{name}{did_you_mean(str(name), ('role', 'content'))}" for name in message)
        raise ConversationError(f"{location}: message {number} has no role: it has {has or 'nothing'}")
    content = next((message[name] for name in _CONTENT if message.get(name) is not None), None)
    counts = imitated and _counted(location, number, message)
    if role == _CALL_ROLE:
        calls = _calls(f"{location}: message {number}", json_or_text(content))
        return Message(_ASSISTANT, "", counts, {"tool_calls": calls})
    fields: dict[str, Any] = {name: message[name] for name in _TEMPLATE if message.get(name) is not None}
    called = next((message[name] for name in _CALLS if message.get(name)), None)
    if called is not None:
        fields["tool_calls"] = _calls(f"{location}: message {number}", json_or_text(called))
    thoughts = next((message[name] for name in _THOUGHTS if message.get(name)), None)
    if thoughts is not None:
        fields[_THOUGHTS[0]] = text_message(location, "assistant's thoughts", thoughts).content
    if isinstance(content, list):
        content = _joined_parts(location, number, content, folder)
    if content is None and called is None and not any(name in message for name in _CONTENT):
        has = ", ".join(f"{name}{did_you_mean(str(name), ('content',))}" for name in message)
        raise ConversationError(f"{location}: message {number} has no content: it has {has}")
    role = _ROLES.get(role.lower(), role.lower() if role.lower() in _CHAT_ROLES else role)
    if called is not None and (content is None or content == ""):
        return Message(role, "", counts and role == _ASSISTANT, fields)
    return Message(role, text_message(location, role, content).content, counts and role == _ASSISTANT, fields)


def _counted(location: str, number: int, message: Mapping[str, Any]) -> bool:
    """Whether the loss counts a message, by its fields. Raises ConversationError for shares, and for flags as text."""
    flags = {name: message[name] for name in _COUNTS if message.get(name) is not None}
    for name, flag in flags.items():
        if flag not in (0, 1):
            raise ConversationError(
                f"{location}: {name} of message {number} must be 1 (imitated) or 0 (context), not {flag!r}"
            )
    return all(flags.values())


def _joined_parts(location: str, number: int, parts: Sequence[Any], folder: Path | None) -> str:
    """Return the words of content that is a list of parts, with its pictures. Raises ConversationError for sound."""
    try:
        return content_text(parts, folder)
    except PictureError as error:
        raise ConversationError(f"{location}: message {number} has {error}") from error


def _calls(location: str, value: Any) -> list[dict[str, Any]]:
    """Return calls as chat templates take them: arguments are objects, even if the file has them as JSON text."""
    calls = []
    for one in value if isinstance(value, list) else [value]:
        own = one.get("function", one) if isinstance(one, Mapping) else None
        if not isinstance(own, Mapping) or not isinstance(own.get("name"), str):
            raise ConversationError(f"{location} has a call of a tool without a name")
        arguments = json_or_text(own.get("arguments", own.get("parameters", {})))
        function = {"name": own["name"], "arguments": arguments}
        kept = {"id": one["id"]} if one.get("id") is not None else {}
        calls.append({**kept, "type": "function", "function": function})
    return calls
