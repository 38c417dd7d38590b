"""The tools of an environment, made from its setting ``tools``, and the conversations that use them.

tools:
  - python                                     # a program in the sandbox
  - search: {path: corpus.jsonl}               # passages of a local corpus
  - zoom                                       # a part of a picture, larger
  - my_module:convert                          # a function
  - my_module:Shop: {stock: 5}                 # a class: an object for each conversation, its methods are tools
  - mcp: {command: my-server, args: [--quiet]} # the tools of an MCP server

Objects of a class with an attribute ``pictures`` find there the addresses of the pictures that their conversation has
shown so far, those of tools included (:func:`rlinf.data.pictures.opened` opens them).
"""

from __future__ import annotations

import functools
import importlib
import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlinf.base import timeline
from rlinf.data.pictures import pictures_of
from rlinf_envs.errors import SettingError
from rlinf_envs.suggest import unknown
from rlinf_envs.tools.calls import calls_in
from rlinf_envs.tools.mcp_server import mcp
from rlinf_envs.tools.python_tool import python
from rlinf_envs.tools.search import search
from rlinf_envs.tools.tool import Tool, tool_of, tools_of
from rlinf_envs.tools.zoom import Zoom
from rlinf_envs.typed import misfits

BUILT_IN: Mapping[str, Callable[..., Any]] = {"python": python, "search": search, "mcp": mcp}
CLASSES: Mapping[str, type] = {"zoom": Zoom}
TURNS = 8
"""Responses of a conversation with tools, if max_turns is not given."""
ToolSetting = str | Mapping[str, Any] | Callable[..., Any]


@dataclass(frozen=True)
class _Conversation:
    """The tools of one conversation, and the objects among them that use its pictures."""

    tools: dict[str, Tool]
    viewers: list[Any]

    def show(self, uris: Sequence[str]) -> None:
        for one in self.viewers:
            one.pictures.extend(uris)


class Toolbox:
    """Tools that all conversations share, and classes of which each conversation gets an object."""

    waits = True
    """Tools take time: conversations are answered side by side."""

    def __init__(self, settings: Sequence[ToolSetting]) -> None:
        """Raise SettingError for a tool that is not there, or cannot be offered, or has the name of another."""
        self._shared: list[Tool] = []
        self._classes: list[Callable[[], Any]] = []
        for setting in settings:
            self._add(setting)
        self._conversations: dict[int, _Conversation] = {}
        first = self._new().tools
        self.schemas = [tool.schema for tool in first.values()]
        self.names = tuple(first)
        if not first:
            raise SettingError("tools names no tool")

    def begin(self, row: int, prompt: str = "") -> None:
        """Begin a new conversation: objects of classes start again. ``prompt``: its first message, with its
        pictures."""
        self._conversations[row] = self._new()
        self._conversations[row].show(pictures_of(prompt))

    def answer(self, row: int, response: str) -> str | None:
        """Return the tools' answers to the calls in a response, one after another; None if it calls none."""
        calls = calls_in(response)
        if not calls:
            return None
        conversation = self._conversations.get(row) or self._new()
        tools = conversation.tools
        answers = []
        for call in calls:
            if call.problem:
                answers.append(f"error: {call.problem}")
            elif call.name not in tools:
                answers.append(f"error: {unknown('tool', call.name, tools)}")
            else:
                with timeline.span(f"tool {call.name}", track=f"row {row}", details={"row": row}):
                    answers.append(tools[call.name].answer(call.arguments))
                conversation.show(pictures_of(answers[-1]))
        return "\n".join(answers)

    def _add(self, setting: ToolSetting) -> None:
        name: Any
        if isinstance(setting, Mapping):
            if len(setting) != 1:
                raise SettingError(f"tools: {dict(setting)!r:.80} must be one name with its options")
            [(name, options)] = setting.items()
        else:
            name, options = setting, {}
        options = {} if options is None else options
        if not isinstance(options, Mapping):
            raise SettingError(f"tools: the options of {name} must be a mapping, got {options!r:.80}")
        if callable(name):
            self._add_found(name, options)
        elif name in CLASSES:
            self._add_found(CLASSES[name], options)
        elif name in BUILT_IN:
            self._shared += _built_in(str(name), json.dumps(dict(options), sort_keys=True, default=str))
        elif ":" in str(name):
            self._add_found(_imported(str(name)), options)
        else:
            known = unknown("tool", str(name), [*BUILT_IN, *CLASSES])
            raise SettingError(f"tools: {known}; a tool of your own is module:name")

    def _add_found(self, result: Callable[..., Any], options: Mapping[str, Any]) -> None:
        if inspect.isclass(result):
            self._classes.append(functools.partial(_made, result.__name__, result, options))
        elif options:
            raise SettingError(f"tools: {result.__name__} is a function and takes no options ({', '.join(options)})")
        else:
            self._shared.append(tool_of(result))

    def _new(self) -> _Conversation:
        objects = [make() for make in self._classes]
        own = [tool for one in objects for tool in tools_of(one)]
        tools: dict[str, Tool] = {}
        for tool in (*self._shared, *own):
            if tool.name in tools:
                raise SettingError(f"tools: there are two tools called {tool.name}")
            tools[tool.name] = tool
        return _Conversation(tools, [one for one in objects if isinstance(getattr(one, "pictures", None), list)])


def turns_with(tools: Sequence[Any], max_turns: int | None) -> int:
    """Responses of a conversation: 1 without tools.

    Raises:
        SettingError: there are several without a tool, to which nothing would answer.
    """
    if max_turns is None:
        return TURNS if tools else 1
    if not tools and max_turns != 1:
        raise SettingError(f"max_turns is for conversations with a tool; without one it must be 1, got {max_turns}")
    return max_turns


@functools.lru_cache(maxsize=64)
def _built_in(name: str, options: str) -> list[Tool]:
    """One index and one connection in a process, however many conversations use them."""
    arguments = json.loads(options)
    wrong = misfits(BUILT_IN[name], arguments, f"tools: {name}.")
    if wrong:
        raise SettingError("; ".join(wrong))
    made = _made(name, BUILT_IN[name], arguments)
    return made if isinstance(made, list) else [made]


def _made(name: str, make: Callable[..., Any], options: Mapping[str, Any]) -> Any:
    try:
        inspect.signature(make).bind(**options)
    except TypeError as error:
        raise SettingError(f"tools: {name}: {error}") from error
    return make(**options)


def _imported(path: str) -> Callable[..., Any]:
    module_name, _, name = path.partition(":")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # whatever the user's module does when it is imported
        raise SettingError(f"tools: cannot import {module_name!r}: {type(error).__name__}: {error}") from error
    result: Callable[..., Any] | None = getattr(module, name, None)
    if not callable(result):
        names = [known for known, value in vars(module).items() if callable(value) and known[0] != "_"]
        raise SettingError(f"tools: {module_name!r}: {unknown('tool', name, names)}")
    return result
