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

from rlinf.base.json_text import json_or_text, written_values
from rlinf.base.thought_marks import without_closed_thoughts
from rlinf.base.tool_calls import calls_in, written

Calls = list[tuple[str, Any]]
"""(name, arguments), in the order of the response; arguments that could not be read are left as text."""


@dataclass(frozen=True)
class ToolForm:
    """One family's way to write calls."""

    name: str
    mark: str
    """Stands in what the template writes for a call."""
    find: Callable[[str], Calls]
    reads_thoughts: bool = False
    """Whether ``find`` distinguishes thoughts from the rest."""

    def calls(self, raw: str) -> Calls:
        """Return the calls in a response with its special tokens; those in closed thoughts are plans."""
        return self.find(raw if self.reads_thoughts else without_closed_thoughts(raw))


# What a call holds ends before the next call begins: a response of opening marks alone is read once.
_XML_CALL = re.compile(r"<function=([^<>\s]+)>((?:(?!<function=).)*?)</function>", re.DOTALL)
_XML_ARGUMENT = re.compile(r"<parameter=([^<>\s]+)>\n?(.*?)\n?(?:</parameter>|(?=<parameter=)|\Z)", re.DOTALL)
_GLM_CALL = re.compile(r"<tool_call>\s*([\w.-]++)\s*((?:(?!<tool_call>).)*?)</tool_call>", re.DOTALL)
_GLM_ARGUMENT = re.compile(
    r"<arg_key>((?:(?!<arg_key>).)*?)</arg_key>\s*<arg_value>((?:(?!<arg_key>).)*?)</arg_value>", re.DOTALL
)
_HARMONY = re.compile(
    r"to=functions\.([\w.-]++)(?:(?!to=functions\.).)*?<\|message\|>(.*?)(?:<\|call\|>|<\|end\|>|\Z)", re.DOTALL
)
_DEEPSEEK = re.compile(r"<｜tool▁sep｜>([\w.-]++)\s*```json\s*((?:(?!<｜tool▁sep｜>).)*?)```", re.DOTALL)
_DEEPSEEK_BARE = re.compile(
    r"<｜tool▁call▁begin｜>\s*([\w.-]++)<｜tool▁sep｜>\s*(\{(?:(?!<｜tool▁).)*)<｜tool▁call▁end｜>", re.DOTALL
)
_KIMI = re.compile(
    r"functions\.([\w.-]++):\d+<\|tool_call_argument_begin\|>((?:(?!<\|tool_call_argument_begin\|>).)*?)"
    r"<\|tool_call_end\|>",
    re.DOTALL,
)
_GEMMA_CALL = re.compile(r"<\|tool_call>call:([\w.-]++)(\{(?:(?!<\|tool_call>).)*?\})<tool_call\|>", re.DOTALL)
_PYTHONIC = re.compile(r"<\|tool_call_start\|>((?:(?!<\|tool_call_start\|>).)*?)<\|tool_call_end\|>", re.DOTALL)
_GEMMA_KEY = re.compile(r"([{,]\s*)([\w-]+):")
_LLAMA_DRESS = ("<|python_tag|>", "```json", "```"), ("<|eom_id|>", "<|eot_id|>", "```")
"""What may stand in front of a call, and behind it."""
_MISTRAL_NAMED = re.compile(
    r"\[TOOL_CALLS\]\s*([\w.-]+)\s*(?:\[CALL_ID\]\w+)?(?:\[ARGS\]|(?=\{))(.*?)(?=\[TOOL_CALLS\]|</s>|\Z)", re.DOTALL
)


def _keyed(call: re.Pattern[str], argument: re.Pattern[str]) -> Callable[[str], Calls]:
    return lambda text: [
        (name, {key.strip(): json_or_text(value) for key, value in argument.findall(body)})
        for name, body in call.findall(text)
    ]


def _named(pattern: re.Pattern[str]) -> Callable[[str], Calls]:
    return lambda text: [(name, json_or_text(body)) for name, body in pattern.findall(text)]


def _mistral(text: str) -> Calls:
    named = _named(_MISTRAL_NAMED)(text)
    if named:
        return named
    _, result, rest = text.partition("[TOOL_CALLS]")
    return _objects(json_or_text(rest.replace("</s>", ""))) if result else []


def _llama(text: str) -> Calls:
    """Read a response that is nothing but calls. An object without parameters is an answer in JSON."""
    bare = text.strip()
    for before, behind in zip(*_LLAMA_DRESS, strict=True):
        bare = bare.removeprefix(before).removesuffix(behind).strip()
    try:
        values = written_values(bare) if bare[:1] in ("{", "[") else []
    except ValueError:
        return []
    complete = all(isinstance(each, Mapping) and {"parameters", "arguments"} & set(each) for each in values)
    return _objects(values) if complete else []


def _deepseek(text: str) -> Calls:
    return _named(_DEEPSEEK)(text) or _named(_DEEPSEEK_BARE)(text)


def _gemma(text: str) -> Calls:
    """Keys without quotes, texts between marks: ``call:f{a:3,b:<|"|>x<|"|>}``."""
    calls: Calls = []
    for name, body in _GEMMA_CALL.findall(text):
        parts = body.split('<|"|>')
        bare = "".join(
            json.dumps(part) if index % 2 else _GEMMA_KEY.sub(r'\1"\2":', part) for index, part in enumerate(parts)
        )
        calls.append((name, json_or_text(bare)))
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
    ToolForm("deepseek", "<｜tool▁sep｜>", _deepseek),
    ToolForm("kimi", "<|tool_call_argument_begin|>", _named(_KIMI)),
    ToolForm("gemma", "<|tool_call>call:", _gemma),
    ToolForm("pythonic", "<|tool_call_start|>[", _pythonic),
    ToolForm("llama", '{"name": "', _llama),
)
"""In the order in which they are searched for: the last mark is part of others."""


def first_call(response: str) -> str:
    """Return the tool that a response in the form of environments calls first; some name if it calls none."""
    return next((call.name for call in calls_in(response) if call.name), "tool")


def canonical(form: ToolForm, raw: str, plain: str) -> str:
    """Convert a response for environments: the calls that ``form`` finds in ``raw``; else ``plain`` as it is.
    ``raw`` is the text with special tokens, ``plain`` without: families differ in whether their marks are such.
    """
    return "\n".join(written(name, arguments) for name, arguments in form.calls(raw)) or plain


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
