"""Calls in a response, in the one form that environments read.

``<tool_call>{"name": ..., "arguments": {...}}</tool_call>``

Model families write calls in forms of their own; the rollout puts them into this one before an environment reads them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rlinf.base.json_text import parse_json, written_values
from rlinf.base.thought_marks import without_closed_thoughts

CALL_FORM = '<tool_call>{"name": ..., "arguments": {...}}</tool_call>'
"""As prompts describe it."""
_OPENING, _CLOSING = "<tool_call>", "</tool_call>"
_FENCE = re.compile(r"\A```(?:json)?\s|```\Z")


@dataclass(frozen=True)
class ToolCall:
    """One call, or what is wrong with it."""

    name: str
    arguments: Mapping[str, Any]
    problem: str = ""


def calls_in(response: str) -> list[ToolCall]:
    """Parse the calls of a response, in their order; calls in closed thoughts are plans.

    A call without its last mark counts if it is complete: some models end their turn there.
    """
    calls: list[ToolCall] = []
    for part in without_closed_thoughts(response).split(_OPENING)[1:]:
        content, closing, _ = part.partition(_CLOSING)
        closed = _calls(_FENCE.sub("", content.strip()))
        if closing == _CLOSING or not any(call.problem for call in closed):
            calls += closed
    return calls


def written(name: str, arguments: Mapping[str, Any]) -> str:
    """Write a call as :func:`calls_in` reads it, and as a demonstration shows it.

    >>> written("add", {"a": 1})
    '<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>'
    """
    return f"<tool_call>{json.dumps({'name': name, 'arguments': dict(arguments)}, ensure_ascii=False)}</tool_call>"


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
    name = content["name"].strip()
    arguments = content.get("arguments", content.get("parameters"))
    if arguments is None and len(content) > 1 and not {"arguments", "parameters"} & set(content):
        return ToolCall(name, {}, f'a call has "name" and "arguments", and not {", ".join(content)}')
    if isinstance(arguments, str):  # some models quote them
        try:
            arguments = parse_json(arguments) if arguments.strip() else None
        except ValueError:
            return ToolCall(name, {}, "the arguments are no valid JSON")
    if arguments is None:
        return ToolCall(name, {})
    if not isinstance(arguments, dict):
        return ToolCall(name, {}, "the arguments must be an object")
    return ToolCall(name, arguments)
