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

from rlinf.base.json_text import parse_json

CALL_FORM = '<tool_call>{"name": ..., "arguments": {...}}</tool_call>'
"""As prompts describe it."""
_CALL = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)


@dataclass(frozen=True)
class ToolCall:
    """One call, or what is wrong with it."""

    name: str
    arguments: Mapping[str, Any]
    problem: str = ""


def calls_in(response: str) -> list[ToolCall]:
    """Parse the calls of a response, in their order."""
    return [_call(result) for result in _CALL.findall(response)]


def written(name: str, arguments: Mapping[str, Any]) -> str:
    """Write a call as :func:`calls_in` reads it, and as a demonstration shows it.

    >>> written("add", {"a": 1})
    '<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>'
    """
    return f"<tool_call>{json.dumps({'name': name, 'arguments': dict(arguments)}, ensure_ascii=False)}</tool_call>"


def _call(text: str) -> ToolCall:
    try:
        content = parse_json(text)
    except ValueError as error:
        return ToolCall("", {}, f"the call is no valid JSON: {error}")
    if not isinstance(content, dict) or not isinstance(content.get("name"), str):
        return ToolCall("", {}, 'a call is an object with "name" and "arguments"')
    arguments = content.get("arguments", {})
    if isinstance(arguments, str):  # some models quote them
        try:
            arguments = parse_json(arguments)
        except ValueError:
            return ToolCall(content["name"], {}, "the arguments are no valid JSON")
    if not isinstance(arguments, dict):
        return ToolCall(content["name"], {}, "the arguments must be an object")
    return ToolCall(content["name"], arguments)
