"""Chat messages of the OpenAI protocol: to tokens, and from a response back."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rlinf.base.tool_calls import calls_in, read_arguments, without_calls
from rlinf.rollouts.agents.episodes import AgentEpisode
from rlinf.rollouts.text.tokens.prompts import PromptRenderer
from rlinf.rollouts.text.tokens.tool_forms import tool_message


class BadRequest(Exception):
    """A request that can't be answered; the message gives the reason."""

    def __init__(self, message: str, code: str = "invalid_request_error") -> None:
        super().__init__(message)
        self.code = code


def names_of(messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return what identifies each message of a conversation, the first with the tools."""
    if not messages or not all(isinstance(message, Mapping) and "role" in message for message in messages):
        raise BadRequest("messages must be a list of objects with role and content, and not empty")
    calls = [message.get("tool_calls") or () for message in messages]
    if not all(isinstance(one, list | tuple) and all(map(_is_call, one)) for one in calls):
        raise BadRequest("tool_calls must be a list of objects with a function that has a name")
    names = [_name(message) for message in messages]
    if tools:
        names[0] += json.dumps(list(tools), sort_keys=True)
    return names


def context_of(
    episode: AgentEpisode,
    messages: Sequence[Mapping[str, Any]],
    names: Sequence[str],
    tools: Sequence[Mapping[str, Any]],
    renderer: PromptRenderer,
) -> tuple[int, ...]:
    """Return token ids of a conversation, up to the start of the policy's turn. ``names``: see :func:`names_of`.

    If it begins with one that the policy has answered in this episode, those tokens are kept as they were drawn.
    Only what is new is tokenised.
    """
    spoken = [index for index, message in enumerate(messages) if message["role"] == "assistant"]
    if spoken and spoken[-1] + 1 < len(messages):
        known = episode.histories.get(tuple(names[: spoken[-1] + 1]))
        if known is not None:
            called = {call.get("id"): call["function"]["name"] for call in messages[spoken[-1]].get("tool_calls") or ()}
            rest = [_answering(_plain(message), called) for message in messages[spoken[-1] + 1 :]]
            return known + renderer.continuation_of(rest, after=known[-1])
    return renderer.conversation([_plain(message) for message in messages], tools=tools)


def remember(episode: AgentEpisode, names: Sequence[str], answer: Mapping[str, Any], ids: tuple[int, ...]) -> None:
    """Keep the tokens of a conversation that ends with the policy's ``answer``, for those that go on from it."""
    episode.histories[*names, _name(answer)] = ids


def answer_of(text: str, *, with_tools: bool, name: str) -> dict[str, Any]:
    """Build the message of a response: with tools, texts in <tool_call> marks are calls; ``name`` begins their ids."""
    message: dict[str, Any] = {"role": "assistant", "content": text}
    calls = []
    for number, call in enumerate(calls_in(text) if with_tools else ()):
        if call.name:  # arguments that cannot be read are the client's to refuse
            arguments = call.unread if isinstance(call.unread, str) else json.dumps(call.unread or call.arguments)
            function = {"name": call.name, "arguments": arguments}
            calls.append({"id": f"call-{name}-{number}", "type": "function", "function": function})
    if calls:
        message |= {"content": without_calls(text) or None, "tool_calls": calls}
    return message


def _is_call(call: object) -> bool:
    function = call.get("function") if isinstance(call, Mapping) else None
    return isinstance(function, Mapping) and "name" in function


def _answering(message: dict[str, Any], called: Mapping[Any, str]) -> dict[str, Any]:
    """Convert a tool's message to the form of templates; ``called`` has the tools' names by the ids of their calls."""
    if message["role"] != "tool":
        return message
    return tool_message(message["content"], message.get("name") or called.get(message.get("tool_call_id"), "tool"))


def _name(message: Mapping[str, Any]) -> str:
    """Return the part of a message that identifies it: the ids of tool calls do not."""
    calls = [call.get("function") for call in message.get("tool_calls") or ()]
    return json.dumps([message["role"], _text(message), calls], sort_keys=True)


def _text(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, str) or content is None:
        return content or ""
    parts = [part.get("text") for part in content if isinstance(part, Mapping)]
    texts = [part for part in parts if isinstance(part, str)]
    if len(texts) != len(content):
        raise BadRequest("the policy reads text alone: the parts of a message's content must be of type text")
    return "".join(texts)


def _plain(message: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a message to the form of chat templates: content is text, arguments of calls are objects."""
    plain: dict[str, Any] = {"role": message["role"], "content": _text(message)}
    plain |= {name: message[name] for name in ("name", "tool_call_id") if message.get(name) is not None}
    calls = []
    for call in message.get("tool_calls") or ():
        function = dict(call["function"])
        try:
            function["arguments"] = read_arguments(function.get("arguments"))
        except ValueError as error:
            raise BadRequest(f"a call of {function['name']}: {error}") from None
        calls.append({"type": "function", "function": function})
    return plain | ({"tool_calls": calls} if calls else {})
