"""Calls of tools in a response, in the one form that environments and the clients of agents read.

``<tool_call>{"name": ..., "arguments": {...}}</tool_call>``

Model families write calls in forms of their own; the rollout puts them into this one before an environment reads them.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rlinf.base.json_text import literal, written_values
from rlinf.base.thought_marks import without_closed_thoughts

CALL_FORM = '<tool_call>{"name": ..., "arguments": {...}}</tool_call>'
"""As prompts describe it."""
_CALL = re.compile(r"<tool_call>((?:(?!</?tool_call>).)*+)(</tool_call>)?", re.DOTALL)
_QUOTING_CALL = re.compile(
    r'<tool_call>((?:"[^"\\]*+(?:\\.[^"\\]*+)*+"|\\.|(?!</?tool_call>).)*+)(</tool_call>)?', re.DOTALL
)
"""A call with marks in its texts."""
_MARK = re.compile(r"<(?=/?tool_call>)")
_FENCE = re.compile(r"\A```\w*\s|```\Z")
_PYTHON = re.compile(r"\[?\s*[A-Za-z_][\w.]*\s*\(")
_OTHERS = {"name", "function", "type", "id"}
"""Keys of a call that has no arguments."""


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
            values = written_values(arguments) if arguments.strip() else [{}]
        except ValueError as error:
            raise ValueError(f"the arguments are no valid JSON: {error}") from None
        arguments = values[0] if len(values) == 1 else values
    if arguments is not None and not isinstance(arguments, dict):
        raise ValueError("the arguments must be an object")
    return arguments or {}


def written(name: str, arguments: Any) -> str:
    """Write a call as :func:`calls_in` reads it, and as a demonstration shows it.

    >>> written("add", {"a": 1})
    '<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>'
    """
    return marked(json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False))


def marked(call: str) -> str:
    """Put the marks around a call. Those in its arguments would end it."""
    call = _MARK.sub(r"\\u003c", call)
    return f"<tool_call>{call}</tool_call>"


def read_calls(text: str) -> list[ToolCall]:
    """Parse what stands between marks: objects of JSON, or calls of Python (``f(a=1)``); in a fence too."""
    text = _FENCE.sub("", text.strip())
    kind = "Python" if _PYTHON.match(text) else "JSON"
    try:
        return _python_calls(text) if kind == "Python" else [_call(content) for content in written_values(text)]
    except ValueError as error:
        return [ToolCall("", {}, f"the call is no valid {kind}: {error}")]


def _marked(text: str) -> Iterator[tuple[re.Match[str], list[ToolCall]]]:
    """Find the calls between marks. A call that is broken at a mark may have it in a text of its arguments."""
    end, tried = 0, 0  # what was tried to its end isn't tried from within: each character is read once or twice
    while mark := _CALL.search(text, end):
        end = mark.end()
        if not mark[1] and not mark[2]:  # another opening mark follows
            continue
        calls = read_calls(mark[1])
        if _broken(calls) and mark.start() >= tried and (quoting := _QUOTING_CALL.match(text, mark.start())):
            tried = quoting.end()
            if tried > end and not _broken(longer := read_calls(quoting[1])):
                mark, calls, end = quoting, longer, tried
        if mark[2] or not _broken(calls):
            yield mark, calls


def _broken(calls: Sequence[ToolCall]) -> bool:
    return any(call.problem for call in calls)


def _python_calls(text: str) -> list[ToolCall]:
    """Parse calls in lines or in a list, which may be printed."""
    try:
        statements = ast.parse(text).body
        values = [one.value if isinstance(one, ast.Expr | ast.Assign) else one for one in statements]
        calls = [one for each in values for one in (each.elts if isinstance(each, ast.List | ast.Tuple) else [each])]
        return [_python_call(call) for call in calls]
    except SyntaxError as error:
        raise ValueError(f"{error.msg}: line {error.lineno} column {error.offset}") from None
    except (MemoryError, RecursionError):
        raise ValueError("brackets are nested too deeply") from None


def _python_call(node: ast.expr | ast.stmt) -> ToolCall:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print" and node.args:
        node = node.args[0]
    if not isinstance(node, ast.Call) or node.args or any(each.arg is None for each in node.keywords):
        at = f"line {node.lineno} column {node.col_offset + 1}"
        raise ValueError(f"a call is NAME(ARGUMENT=VALUE, ...): {at}")
    return ToolCall(ast.unparse(node.func), {str(each.arg): literal(each.value) for each in node.keywords})


def _call(content: Any) -> ToolCall:
    if isinstance(content, dict) and isinstance(content.get("function"), dict):
        content = content["function"]
    name = content.get("name", content.get("function")) if isinstance(content, dict) else None
    if not isinstance(name, str):
        return ToolCall("", {}, 'a call is an object with "name" and "arguments"')
    name, arguments = name.strip(), content.get("arguments", content.get("parameters"))
    if not {"arguments", "parameters"} & set(content) and set(content) - _OTHERS:
        return ToolCall(name, {}, f'a call has "name" and "arguments", and not {", ".join(content)}')
    try:
        return ToolCall(name, read_arguments(arguments))
    except ValueError as error:
        return ToolCall(name, {}, str(error), arguments)
