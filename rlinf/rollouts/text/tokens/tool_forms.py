"""How model families write calls of tools, and how a call of any of them reads in the one form of environments.

The family is recognised by what its chat template writes for a call; environments read
``<tool_call>{"name": ..., "arguments": {...}}</tool_call>``.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlinf.base.json_text import check_depth, parse_json

Calls = list[tuple[str, Any]]
"""(name, arguments), in the order of the response; arguments that could not be read are left as text."""


@dataclass(frozen=True)
class ToolForm:
    """One family's way to write calls."""

    name: str
    mark: str
    """Stands in what the template writes for a call."""
    find: Callable[[str], Calls]


_HERMES = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)
_XML_CALL = re.compile(r"<function=([^>\s]+)>(.*?)</function>", re.DOTALL)
_XML_ARGUMENT = re.compile(r"<parameter=([^>\s]+)>\n?(.*?)\n?</parameter>", re.DOTALL)
_GLM_CALL = re.compile(r"<tool_call>\s*([\w.-]+)\s*(.*?)</tool_call>", re.DOTALL)
_GLM_ARGUMENT = re.compile(r"<arg_key>(.*?)</arg_key>\s*<arg_value>(.*?)</arg_value>", re.DOTALL)
_HARMONY = re.compile(r"to=functions\.([\w.-]+).*?<\|message\|>(.*?)(?:<\|call\|>|<\|end\|>|\Z)", re.DOTALL)
_DEEPSEEK = re.compile(r"<｜tool▁sep｜>([\w.-]+)\s*```json\s*(.*?)```", re.DOTALL)
_KIMI = re.compile(r"functions\.([\w.-]+):\d+<\|tool_call_argument_begin\|>(.*?)<\|tool_call_end\|>", re.DOTALL)
_GEMMA_CALL = re.compile(r"<\|tool_call>call:([\w.-]+)(\{.*?\})<tool_call\|>", re.DOTALL)
_GEMMA_KEY = re.compile(r"([{,]\s*)([\w-]+):")
_PYTHONIC = re.compile(r"<\|tool_call_start\|>(.*?)<\|tool_call_end\|>", re.DOTALL)
_LLAMA_START = re.compile(r"\A\s*(?:<\|python_tag\|>)?\s*(?=\{)")
_MISTRAL_NAMED = re.compile(
    r"\[TOOL_CALLS\]\s*([\w.-]+)\s*(?:\[CALL_ID\]\w+)?\[ARGS\](.*?)(?=\[TOOL_CALLS\]|</s>|\Z)", re.DOTALL
)


def _read(text: str) -> Any:
    """Arguments as JSON; what is none is left as text, which the environment refuses in words."""
    try:
        return parse_json(text)
    except ValueError:
        return text.strip()


def _keyed(call: re.Pattern[str], argument: re.Pattern[str]) -> Callable[[str], Calls]:
    return lambda text: [
        (name, {key.strip(): _read(value) for key, value in argument.findall(body)})
        for name, body in call.findall(text)
    ]


def _named(pattern: re.Pattern[str]) -> Callable[[str], Calls]:
    return lambda text: [(name, _read(body)) for name, body in pattern.findall(text)]


def _mistral(text: str) -> Calls:
    named = _named(_MISTRAL_NAMED)(text)
    if named:
        return named
    _, result, rest = text.partition("[TOOL_CALLS]")
    return _objects(_read(rest.replace("</s>", ""))) if result else []


def _llama(text: str) -> Calls:
    """Read a response that is nothing but a call."""
    start = _LLAMA_START.match(text)
    if start is None:
        return []
    try:
        check_depth(text[start.end() :])
        content, _ = json.JSONDecoder().raw_decode(text[start.end() :])
    except ValueError:
        return []
    return _objects([content])


def _gemma(text: str) -> Calls:
    """Keys without quotes, texts between marks: ``call:f{a:3,b:<|"|>x<|"|>}``."""
    calls: Calls = []
    for name, body in _GEMMA_CALL.findall(text):
        parts = body.split('<|"|>')
        bare = "".join(
            json.dumps(part) if index % 2 else _GEMMA_KEY.sub(r'\1"\2":', part) for index, part in enumerate(parts)
        )
        calls.append((name, _read(bare)))
    return calls


def _pythonic(text: str) -> Calls:
    """Find calls as Python writes them: ``[f(a=3), g()]``."""
    calls: Calls = []
    for body in _PYTHONIC.findall(text):
        try:
            tree = ast.parse(body.strip(), mode="eval").body
            result = tree.elts if isinstance(tree, ast.List) else [tree]
            for call in result:
                if isinstance(call, ast.Call):
                    named = {str(each.arg): ast.literal_eval(each.value) for each in call.keywords}
                    calls.append((ast.unparse(call.func), named))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            calls.append(("", body.strip()))
    return calls


def _objects(content: Any) -> Calls:
    listed = content if isinstance(content, list) else [content]
    return [
        (str(each["name"]), each.get("arguments", each.get("parameters", {})))
        for each in listed
        if isinstance(each, Mapping) and "name" in each
    ]


ANY_TOOL: Mapping[str, Any] = {
    "type": "function",
    "function": {"name": "tool", "description": "A tool.", "parameters": {"type": "object", "properties": {}}},
}
_QUESTION: Mapping[str, Any] = {"role": "user", "content": "question"}

HERMES = ToolForm("hermes", '<tool_call>\n{"name"', lambda text: [])
FORMS: Sequence[ToolForm] = (
    HERMES,
    ToolForm("xml", "<function=", _keyed(_XML_CALL, _XML_ARGUMENT)),
    ToolForm("glm", "<arg_key>", _keyed(_GLM_CALL, _GLM_ARGUMENT)),
    ToolForm("mistral", "[TOOL_CALLS]", _mistral),
    ToolForm("harmony", "to=functions.", _named(_HARMONY)),
    ToolForm("deepseek", "<｜tool▁sep｜>", _named(_DEEPSEEK)),
    ToolForm("kimi", "<|tool_call_argument_begin|>", _named(_KIMI)),
    ToolForm("gemma", "<|tool_call>call:", _gemma),
    ToolForm("pythonic", "<|tool_call_start|>[", _pythonic),
    ToolForm("llama", '{"name": "', _llama),
)
"""In the order in which they are searched for: the last mark is part of others."""


def first_call(response: str) -> str:
    """Return the tool that a response in the form of environments calls first; some name if it calls none."""
    result = _HERMES.search(response)
    content = _read(result.group(1)) if result else None
    return str(content["name"]) if isinstance(content, Mapping) and content.get("name") else "tool"


def canonical(form: ToolForm, raw: str, plain: str) -> str:
    """Convert a response for environments: the calls that ``form`` finds in ``raw``; else ``plain`` as it is.

    ``raw`` is the text with special tokens, ``plain`` without: families differ in whether their marks are such.
    """
    calls = form.find(raw)
    if not calls:
        return plain
    return "\n".join(
        f"<tool_call>{json.dumps({'name': name, 'arguments': arguments}, ensure_ascii=False)}</tool_call>"
        for name, arguments in calls
    )


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


def answered_turns(answer: str, rest: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """List a question, an answer of the policy, and what comes after it."""
    return [_QUESTION, {"role": "assistant", "content": answer}, *rest]


def called_turns(argument: str, rest: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """List a question, a call of the tool that the first of ``rest`` names, and what comes after it."""
    return [_QUESTION, call_message(argument, rest[0]["name"]), *rest]
