"""A tool as a policy sees it: a name, what it is for, and the arguments that it takes."""

from __future__ import annotations

import inspect
import json
import re
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

from rlinf.base.json_text import written_value
from rlinf.data.pictures import has_picture, marked, observed, pieces
from rlinf_envs.errors import SettingError
from rlinf_envs.suggest import unknown

_PLAIN: Mapping[Any, str] = {str: "string", int: "integer", float: "number", bool: "boolean"}
_ARGUMENT = re.compile(r"^\s{0,8}(\w+)(?:\s*\([^)]*\))?:\s*(.+)$")
_SECTION = re.compile(r"^\s*(Args|Arguments|Parameters|Returns|Raises|Yields|Examples?):\s*$")
MAX_RESULT_CHARS = 4000
"""Of what a tool answers; the rest is left out, and the policy is shown that."""


class ToolError(Exception):
    """A policy's mistake in a call; its message is the answer."""


@dataclass(frozen=True)
class Tool:
    """One tool. ``call`` takes its arguments by name, from any thread, and returns anything that can be written.

    A picture (an image of PIL, an array uint8), or a list of texts and pictures, is shown to the policy as such.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]
    """JSON schema of an object."""
    call: Callable[..., Any]

    @property
    def schema(self) -> dict[str, Any]:
        """As chat templates and OpenAI-compatible servers take it."""
        function = {"name": self.name, "description": self.description, "parameters": dict(self.parameters)}
        return {"type": "function", "function": function}

    def answer(self, arguments: Mapping[str, Any]) -> str:
        """Return the tool's answer to a call, errors of the call included. An error of the tool itself passes
        through."""
        try:
            result = self.call(**self._checked(arguments))
        except ToolError as error:
            return f"error: {error}"
        if has_picture(result):
            shown = _cut(pieces(observed(result)))
            return "".join(marked(piece) if number % 2 else piece for number, piece in shown)
        text = result if isinstance(result, str) else json.dumps(result, ensure_ascii=False, default=str)
        return "".join(piece for _, piece in _cut([text]))

    def _checked(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        known: Mapping[str, Any] = self.parameters.get("properties", {})
        for name in arguments:
            if name not in known:
                raise ToolError(f"{self.name}: {unknown('argument', name, known)}")
        missing = [repr(name) for name in self.parameters.get("required", ()) if name not in arguments]
        if missing:
            words = "argument {} is" if len(missing) == 1 else "arguments {} are"
            raise ToolError(f"{self.name}: the {words.format(' and '.join(missing))} missing")
        return {name: _converted(self.name, name, value, known[name]) for name, value in arguments.items()}


def _cut(parts: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Texts (even indices) and addresses of pictures, numbered; texts up to the limit, and then how much is cut off."""
    left = MAX_RESULT_CHARS
    for number, part in enumerate(parts):
        if number % 2 or len(part) <= left:
            yield number, part
            left -= 0 if number % 2 else len(part)
        else:
            yield number, f"{part[:left]} ... ({len(part) - left} more characters)"
            left = 0


def _converted(tool: str, name: str, value: Any, schema: Mapping[str, Any]) -> Any:
    """Return the value, if it has the type that the schema requires; what was written as text is read by its type."""
    kind = schema.get("type")
    if kind in ("integer", "number") and isinstance(value, str):
        with suppress(ValueError):
            value = int(value) if kind == "integer" else float(value)
    if kind in ("boolean", "array", "object") and isinstance(value, str):
        with suppress(ValueError):
            value = written_value(value)
    if kind == "integer" and isinstance(value, float) and value.is_integer():
        value = int(value)
    if kind == "string" and isinstance(value, int) and "enum" not in schema:
        value = json.dumps(value)  # some families write all arguments without quotes
    fits = {
        "string": isinstance(value, str),
        "integer": isinstance(value, int) and not isinstance(value, bool),
        "number": isinstance(value, (int, float)) and not isinstance(value, bool),
        "boolean": isinstance(value, bool),
        "array": isinstance(value, list),
        "object": isinstance(value, dict),
    }
    if isinstance(kind, str) and not fits.get(kind, True):
        raise ToolError(f"{tool}: the argument {name!r} must be of type {kind}, got {json.dumps(value)[:80]}")
    if "enum" in schema and value not in schema["enum"]:
        raise ToolError(f"{tool}: the argument {name!r} must be one of {json.dumps(schema['enum'])}")
    return value


def tool_of(function: Callable[..., Any], *, name: str | None = None) -> Tool:
    """Convert a function to a tool: its signature gives the schema, its docstring (Google style) the words.

    Raises:
        SettingError: a parameter without a type, of a type that JSON cannot hold, or that takes any number of
            values.
    """
    called = name or function.__name__
    hints = typing.get_type_hints(function)
    about, arguments = _docstring(inspect.getdoc(function) or "")
    properties: dict[str, Any] = {}
    required: list[str] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise SettingError(f"tool {called}: {parameter} is no argument that can be given by name")
        if parameter.name not in hints:
            raise SettingError(f"tool {called}: the parameter {parameter.name} has no type")
        properties[parameter.name] = {
            **_schema(called, parameter.name, hints[parameter.name]),
            **({"description": arguments[parameter.name]} if parameter.name in arguments else {}),
        }
        if parameter.default is parameter.empty:
            required.append(parameter.name)
    parameters = {"type": "object", "properties": properties, "required": required}
    return Tool(called, about, parameters, function)


def tools_of(instance: Any) -> list[Tool]:
    """Return the public methods of an object as tools."""
    names = [name for name, _ in inspect.getmembers(type(instance), inspect.isfunction) if not name.startswith("_")]
    if not names:
        raise SettingError(f"tool {type(instance).__name__}: it has no public method that could be called")
    return [tool_of(getattr(instance, name), name=name) for name in names]


def _schema(tool: str, name: str, kind: Any) -> dict[str, Any]:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if kind in _PLAIN:
        return {"type": _PLAIN[kind]}
    if origin is Literal:
        types_of_values = {type(value) for value in arguments}
        if len(types_of_values) == 1 and (one := types_of_values.pop()) in _PLAIN:
            return {"type": _PLAIN[one], "enum": list(arguments)}
    if kind is list or origin in (list, Sequence) or getattr(origin, "__name__", "") == "Sequence":
        return {"type": "array", **({"items": _schema(tool, name, arguments[0])} if arguments else {})}
    if kind is dict or origin in (dict, Mapping) or getattr(origin, "__name__", "") == "Mapping":
        return {"type": "object"}
    if origin in (typing.Union, types.UnionType):
        present = [each for each in arguments if each is not type(None)]
        if len(present) == 1:
            return _schema(tool, name, present[0])
    if kind is Any:
        return {}
    raise SettingError(f"tool {tool}: the parameter {name} is of type {kind}, which JSON cannot hold")


def _docstring(text: str) -> tuple[str, dict[str, str]]:
    """Read the description of the function in its docstring, and of its arguments by name."""
    about: list[str] = []
    arguments: dict[str, str] = {}
    section, last = "", ""
    for line in text.splitlines():
        result = _SECTION.match(line)
        if result:
            section, last = result.group(1), ""
        elif not section:
            about.append(line.strip())
        elif section in ("Args", "Arguments", "Parameters") and line.strip():
            argument = _ARGUMENT.match(line)
            if argument:
                last = argument.group(1)
                arguments[last] = argument.group(2).strip()
            elif last:
                arguments[last] += f" {line.strip()}"
    return " ".join(" ".join(about).split()), arguments
