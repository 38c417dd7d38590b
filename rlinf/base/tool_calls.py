"""Calls of tools in a response, in the one form that environments and the clients of agents read.

``<tool_call>{"name": ..., "arguments": {...}}</tool_call>``

Model families write calls in forms of their own; the rollout puts them into this one before an environment reads them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from rlinf.base.json_text import parse_json, written_values
from rlinf.base.thought_marks import without_closed_thoughts

CALL_FORM = '<tool_call>{"name": ..., "arguments": {...}}</tool_call>'
"""As prompts describe it."""
_CALL = re.compile(r"<tool_call>((?:(?!</?tool_call>).)*+)(</tool_call>)?", re.DOTALL)
_MARK = re.compile(r"<(?=/?tool_call>)")
_FENCE = re.compile(r"\A```(?:json)?\s|```\Z")


@dataclass(frozen=True)
class ToolCall:
    """One call, or what is wrong with it."""

    name: str
    arguments: Mapping[str, Any]
    problem: str = ""
    unread: Any = field(default=None, repr=False)
    """The arguments as they were written, if they are the problem."""


def calls_in(response: str) -> list[ToolCall]:
    """Parse the calls of a response, in their order; calls in closed thoughts are plans.

    A call without its last mark counts if it is complete: some models end their turn there.
    """
    return [call for _, calls in _marked(without_closed_thoughts(response)) for call in calls]


def without_calls(response: str) -> str:
    """Return the words around the calls of a response, thoughts without their plans included."""
    words, end = [], 0
    for mark, _ in _marked(response):
        words.append(response[end : mark.start()])
        end = mark.end()
    return "".join([*words, response[end:]]).strip()


def read_arguments(arguments: Any) -> dict[str, Any]:
    """Return the arguments of a call: an object, or its JSON text, or empty where there are none.

    Raises:
        ValueError: they are anything else.
    """
    if isinstance(arguments, str):
        try:
            arguments = parse_json(arguments) if arguments.strip() else None
        except ValueError:
            raise ValueError("the arguments are no valid JSON") from None
    if arguments is not None and not isinstance(arguments, dict):
        raise ValueError("the arguments must be an object")
    return arguments or {}


def written(name: str, arguments: Any) -> str:
    """Write a call as :func:`calls_in` reads it, and as a demonstration shows it.

    >>> written("add", {"a": 1})
    '<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>'
    """
    call = json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)
    call = _MARK.sub(r"\\u003c", call)  # marks in arguments would end it
    return f"<tool_call>{call}</tool_call>"


def _marked(text: str) -> Iterator[tuple[re.Match[str], list[ToolCall]]]:
    """Find the calls between marks."""
    for mark in _CALL.finditer(text):
        calls = _calls(_FENCE.sub("", mark[1].strip()))
        if mark[2] or not any(call.problem for call in calls):
            yield mark, calls


def _calls(text: str) -> list[ToolCall]:
    try:
        return [_call(content) for content in written_values(text)]
    except ValueError as error:
        return [ToolCall("", {}, f"the call is no valid JSON: {error}")]


def _call(content: Any) -> ToolCall:
    if isinstance(content, dict) and isinstance(content.get("function"), dict):
        content = content["function"]
    if not isinstance(content, dict) or not isinstance(content.get("name"), str):
        return ToolCall("", {}, 'a call is an object with "name" and "arguments"')
    name, arguments = content["name"].strip(), content.get("arguments", content.get("parameters"))
    if len(content) > 1 and not {"arguments", "parameters"} & set(content):
        return ToolCall(name, {}, f'a call has "name" and "arguments", and not {", ".join(content)}')
    try:
        return ToolCall(name, read_arguments(arguments))
    except ValueError as error:
        return ToolCall(name, {}, str(error), arguments)
