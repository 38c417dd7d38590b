"""How model families write calls of tools, and how a call of any of them reads in the one form of environments.

The family is recognised by what its chat template writes for a call; environments read
``<tool_call>{"name": ..., "arguments": {...}}</tool_call>``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from rlinf.base.json_text import json_at_start, json_or_text, written_value, written_values
from rlinf.base.thought_marks import without_closed_thoughts
from rlinf.base.tool_calls import calls_in, marked, read_arguments, read_calls, written

Calls = list[tuple[str, Any]]
"""(name, arguments), in the order of the response; arguments are an object or its text. Without a name: a broken call's
text."""


@dataclass(frozen=True)
class ToolForm:
    """One family's way to write calls."""

    name: str
    mark: str
    """Stands in what the template writes for a call."""
    find: Callable[[str], Calls]
    reads_thoughts: bool = False
    """Whether ``find`` distinguishes thoughts from the rest."""
    of_texts: bool = False
    """Whether arguments are all written as text: their types are those of the tools' schemas."""
    tools: tuple[Mapping[str, Any], ...] = ()

    def calls(self, raw: str) -> Calls:
        """Return the calls in a response with its special tokens; those in closed thoughts are plans."""
        calls = self.find(raw if self.reads_thoughts else without_closed_thoughts(raw))
        return [(name, self._typed(name, arguments)) for name, arguments in calls] if self.of_texts else calls

    def _typed(self, name: str, arguments: Any) -> Any:
        if not isinstance(arguments, Mapping):
            return arguments
        functions = (tool.get("function", {}) for tool in self.tools)
        parameters = next((one.get("parameters") or {} for one in functions if one.get("name") == name), {})
        schemas = {key: one for key, one in parameters.get("properties", {}).items() if isinstance(one, Mapping)}
        return {key: _value(text, schemas.get(key, {}).get("type")) for key, text in arguments.items()}


# What a call holds ends before the next call begins: a response of opening marks alone is read once.
_XML_CALL = re.compile(
    r"<function=([^<>\s]+)>((?:(?!<function=).)*?)(?:</function>|</parameter>\s*</tool_call>)", re.DOTALL
)
_XML_ARGUMENT = re.compile(r"<parameter=([^<>\s]+)>\n?(.*?)\n?(?:</parameter>|(?=<parameter=)|\Z)", re.DOTALL)
_GLM_CALL = re.compile(
    r"<tool_call>\s*([\w.-]++)\s*(?=</tool_call>|<arg_key>)((?:<arg_key>(?:(?!<arg_key>).)*?</arg_value>\s*)*+)"
    r"(?:</tool_call>|\Z)",
    re.DOTALL,
)
_GLM_ARGUMENT = re.compile(
    r"<arg_key>((?:(?!<arg_key>).)*?)</arg_key>\s*<arg_value>((?:(?!<arg_key>).)*?)</arg_value>", re.DOTALL
)
_HARMONY = re.compile(
    r"to=functions\.([\w.-]++)(?:(?!to=functions\.|<\|end\|>|<\|message\|>).)*+<\|message\|>", re.DOTALL
)
_DEEPSEEK = re.compile(
    r"<｜tool▁call▁begin｜>\s*(?:function<｜tool▁sep｜>)?([\w.-]++)(?:<｜tool▁sep｜>|\s*```(?:json)?)\s*(?=\{)"
)
_KIMI = re.compile(
    r"(?:<\|tool_call_begin\|>\s*(?:functions\.)?|functions\.)([\w.-]{1,99}+)(?::\d+)?\s*<\|tool_call_argument_begin\|>"
)
_GEMMA_CALL = re.compile(r"<\|tool_call>call:([\w.-]++)(\{(?:(?!<\|tool_call>).)*?\})<tool_call\|>", re.DOTALL)
_GEMMA_KEY = re.compile(r"([{,]\s*)([\w-]+):")
_PYTHONIC = re.compile(r"<\|tool_call_start\|>((?:(?!<\|tool_call_start\|>).)+?)(?:<\|tool_call_end\|>|\Z)", re.DOTALL)
_MISTRAL = re.compile(r"\[TOOL_CALLS\]\s*([\w.-]++)\s*(?:\[CALL_ID\]\w+)?(?:\[ARGS\]|(?=\{))")
_CLOSING = re.compile(r"</s>|<\||<｜|```|\[TOOL_CALLS\]")
"""What families write behind a call."""
_TURN_END = re.compile(r"<[|/]?\w+\|?>\Z")
_BLOCK = re.compile(r"(?:```(\w*)|<tools>)((?:(?!```|</?tools>).)*+)(?:```|</tools>)", re.DOTALL)
_CODE = ("tool_code", "tool_call", "function_call")
"""Labels of blocks that hold calls and nothing else."""
_BEGINS = re.compile(
    r"""\{\s*["'](?:name|function)["']\s*:\s*["'][^"']*["']\s*,\s*["'](?:arguments|parameters)["']\s*:"""
    r"""|\[\s*[A-Za-z_][\w.]*\(\s*(?:\)|\w+\s*=)"""
)


def _value(text: str, kind: Any) -> Any:
    """Read one argument: JSON or Python's literals by its type; without a type JSON, or else a text with its blanks."""
    if kind == "string":
        return text
    try:
        return written_value(text) if kind else json_or_text(text)
    except ValueError:
        return text


def _at_start(text: str) -> str:
    return json_at_start(text) or _CLOSING.split(text, maxsplit=1)[0].strip()


def _listed(text: str) -> Calls:
    """Read text that is nothing but calls; if one is broken, all of it is for the environment to refuse."""
    calls = read_calls(text) if text.strip() else []
    return [("", text)] if any(call.problem for call in calls) else [(call.name, call.arguments) for call in calls]


def _keyed(call: re.Pattern[str], argument: re.Pattern[str]) -> Callable[[str], Calls]:
    """Find calls whose arguments are texts one by one, or JSON."""
    return lambda text: [
        (name, body if body.strip()[:1] == "{" else {key.strip(): value for key, value in argument.findall(body)})
        for name, body in call.findall(text)
    ]


def _named(opening: re.Pattern[str]) -> Callable[[str], Calls]:
    """Find calls that are a name and arguments behind it."""

    def find(text: str) -> Calls:
        _, *parts = opening.split(text)
        return [(name, _at_start(rest)) for name, rest in zip(parts[::2], parts[1::2], strict=True)]

    return find


def _mistral(text: str) -> Calls:
    lists = text.split("[TOOL_CALLS]")[1:]
    return _named(_MISTRAL)(text) or [call for rest in lists for call in _listed(_at_start(rest))]


def _gemma(text: str) -> Calls:
    """Keys without quotes, texts between marks: ``call:f{a:3,b:<|"|>x<|"|>}``."""
    calls: Calls = []
    for name, body in _GEMMA_CALL.findall(text):
        parts = body.split('<|"|>')
        bare = "".join(
            json.dumps(part) if index % 2 else _GEMMA_KEY.sub(r'\1"\2":', part) for index, part in enumerate(parts)
        )
        calls.append((name, bare))
    return calls


def _pythonic(text: str) -> Calls:
    return [call for body in _PYTHONIC.findall(text) for call in _listed(body)]


def _llama(text: str) -> Calls:
    """Read a response that is nothing but calls, or what stands behind Llama's mark or in blocks of code."""
    _, tag, behind = text.rpartition("<|python_tag|>")
    whole = _TURN_END.sub("", behind.strip()).strip()
    if tag or _all_calls(whole):
        return _listed(whole)
    return [
        call
        for label, body in _BLOCK.findall(text)
        if label in _CODE or (label in ("", "json") and _all_calls(body.strip()))
        for call in _listed(body)
    ]


def _all_calls(text: str) -> bool:
    """Whether a text can be nothing but calls. An object without arguments is an answer in JSON."""
    try:
        values = written_values(text) if text[:1] in ("{", "[") else []
    except ValueError:
        return _BEGINS.match(text) is not None
    keys = [set(one) if isinstance(one, Mapping) else set() for one in values]
    return bool(keys) and all(one & {"name", "function"} and one & {"arguments", "parameters"} for one in keys)


ANY_TOOL: Mapping[str, Any] = {
    "type": "function",
    "function": {"name": "tool", "description": "A tool.", "parameters": {"type": "object", "properties": {}}},
}
_QUESTION: Mapping[str, Any] = {"role": "user", "content": "question"}

HERMES = ToolForm("hermes", '<tool_call>\n{"name"', lambda text: [])
LLAMA = ToolForm("llama", '{"name": "', _llama)
FORMS: Sequence[ToolForm] = (
    HERMES,
    ToolForm("xml", "<function=", _keyed(_XML_CALL, _XML_ARGUMENT), of_texts=True),
    ToolForm("glm", "<arg_key>", _keyed(_GLM_CALL, _GLM_ARGUMENT), of_texts=True),
    ToolForm("mistral", "[TOOL_CALLS]", _mistral),
    ToolForm("harmony", "to=functions.", _named(_HARMONY)),
    ToolForm("deepseek", "<｜tool▁sep｜>", _named(_DEEPSEEK)),
    ToolForm("kimi", "<|tool_call_argument_begin|>", _named(_KIMI)),
    ToolForm("gemma", "<|tool_call>call:", _gemma),
    ToolForm("pythonic", "<|tool_call_start|>[", _pythonic),
    LLAMA,
)
"""In the order in which they are searched for: the last mark is part of others."""


def canonical(form: ToolForm, raw: str, plain: str) -> str:
    """Convert a response for environments: the calls that ``form`` finds in ``raw``; else ``plain`` as it is.
    ``raw`` is the text with special tokens, ``plain`` without: families differ in whether their marks are such.

    Models also write the forms of other families, which are read if there is no call in ``form`` or in the
    environments' own.
    """
    calls = form.calls(raw)
    if not calls and all(call.problem for call in calls_in(plain)):
        others = (replace(one, tools=form.tools).calls(raw) for one in FORMS if one is not LLAMA)
        calls = next(filter(None, others), []) or LLAMA.calls(plain)
    return "\n".join(_written(name, arguments) for name, arguments in calls) or plain


def _written(name: str, arguments: Any) -> str:
    with suppress(ValueError):  # the environment refuses them in words
        arguments = read_arguments(arguments) if name else arguments
    return written(name, arguments) if name else marked(arguments)


def described(tools: Sequence[Mapping[str, Any]]) -> str:
    """Describe the tools in words, for models whose chat template has no part for them."""
    lines = ["You may call these tools:"]
    for tool in tools:
        function = tool["function"]
        arguments = json.dumps(function["parameters"].get("properties", {}), ensure_ascii=False)
        lines.append(f"- {function['name']}: {function['description']} Arguments: {arguments}")
    lines.append(
        'To call one, write <tool_call>{"name": NAME, "arguments": {...}}</tool_call> and wait for its answer.'
    )
    return "\n".join(lines)


def call_message(argument: str, name: str = "tool", *, as_text: bool = False) -> dict[str, Any]:
    """Build a call of a tool. Its id has the form that Mistral's templates require.

    ``as_text``: arguments as OpenAI's interface has them, which some templates insist on.
    """
    arguments = {"argument": argument}
    function = {"name": name, "arguments": json.dumps(arguments) if as_text else arguments}
    return {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": "000000000", "type": "function", "function": function}],
    }


def tool_message(observation: str, name: str = "tool") -> dict[str, Any]:
    return {"role": "tool", "name": name, "tool_call_id": "000000000", "content": observation}


def tool_messages(observation: str, response: str, *, several: bool = True) -> list[dict[str, Any]]:
    """Build the answer of tools to the calls in a response, as the environment read it.

    Args:
        several: a message for each call, if each has a line of the answer; all else is one message.
    """
    names = [call.name or "tool" for call in calls_in(response)] or ["tool"]
    lines = observation.split("\n")
    if not several or len(lines) != len(names):
        return [tool_message(observation, names[0])]
    return [tool_message(line, name) for line, name in zip(lines, names, strict=True)]


def answered_turns(answer: str, rest: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """List a question, an answer of the policy, and what comes after it."""
    return [_QUESTION, {"role": "assistant", "content": answer}, *rest]


def called_turns(argument: str, rest: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """List a question, a call of the tool that the first of ``rest`` names, and what comes after it."""
    return [_QUESTION, call_message(argument, rest[0]["name"]), *rest]
