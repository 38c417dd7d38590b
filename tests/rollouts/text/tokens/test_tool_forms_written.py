"""Calls as models of each family write them, which is not always as their templates do."""

from __future__ import annotations

import json
import time

import pytest
from rlinf_envs.tools.calls import calls_in

from rlinf.rollouts.agents.messages import answer_of
from rlinf.rollouts.text.tokens.tool_forms import FORMS, canonical, tool_messages

BY_NAME = {form.name: form for form in FORMS}
ADD = '{"name": "add", "parameters": {"a": 1}}'


def read(family: str, response: str) -> list[tuple[str, object]]:
    lines = canonical(BY_NAME[family], response, "").splitlines()
    calls = [json.loads(line.removeprefix("<tool_call>").removesuffix("</tool_call>")) for line in lines]
    return [(call["name"], call["arguments"]) for call in calls]


@pytest.mark.parametrize(
    ("family", "response", "count"),
    [
        ("llama", ADD, 1),
        ("llama", f"<|python_tag|>{ADD}; {ADD}<|eom_id|>", 2),
        ("llama", f"{ADD}\n{ADD}", 2),
        ("llama", f"[{ADD}, {ADD}]", 2),
        ("llama", f"```json\n{ADD}\n```", 1),
        ("llama", '{"name": "Bob", "age": 5}', 0),
        ("llama", "[1, 2]", 0),
        ("llama", f"I call {ADD}", 0),
        ("xml", "<function=add>\n<parameter=a>\n1\n</parameter>\n</function>", 1),
        ("xml", "<function=add>\n<parameter=a>\n1\n</function>", 1),
        ("xml", "<think>Maybe <function=add></function>?</think>No.", 0),
        ("mistral", '[TOOL_CALLS]add{"a": 1}</s>', 1),
        ("mistral", '[TOOL_CALLS]add[ARGS]{"a": 1}[TOOL_CALLS]add[ARGS]{"a": 1}</s>', 2),
        ("deepseek", '<｜tool▁call▁begin｜>add<｜tool▁sep｜>{"a": 1}<｜tool▁call▁end｜>', 1),
        ("deepseek", '<｜tool▁call▁begin｜>function<｜tool▁sep｜>add\n```json\n{"a": 1}\n```<｜tool▁call▁end｜>', 1),
    ],
)
def test_calls_of_families(family: str, response: str, count: int) -> None:
    assert read(family, response) == [("add", {"a": 1})] * count


def test_blanks_of_a_text_argument_stay() -> None:
    body = "<parameter=t>\n    x = 1\n    y = 2\n</parameter>\n<parameter=u>\n a\n</parameter>"
    assert read("xml", f"<function=print>\n{body}\n</function>") == [
        ("print", {"t": "    x = 1\n    y = 2", "u": " a"})
    ]


def test_marks_in_arguments_do_not_end_a_call() -> None:
    text = "between <tool_call> and </tool_call>"
    response = canonical(BY_NAME["xml"], f"<function=print>\n<parameter=t>\n{text}\n</parameter>\n</function>", "")
    assert [call.arguments for call in calls_in(response)] == [{"t": text}]


def test_the_endpoint_passes_arguments_on_as_they_are() -> None:
    quoted = json.dumps({"name": "add", "arguments": '{"a": 1}'})
    text = f"<think>or <tool_call>{ADD}</tool_call></think><tool_call>{quoted}</tool_call><tool_call>{ADD}</tool_call>"
    calls = answer_of(text, with_tools=True, name="x")["tool_calls"]
    assert [call["function"]["arguments"] for call in calls] == ['{"a": 1}', '{"a": 1}']


@pytest.mark.parametrize(
    "text",
    [
        "<tool_call>" * 20_000,
        "<function=a>" * 20_000,
        "<function=a><parameter=b>" * 9_000,
        "<tool_call>" + "-" * 200_000,
        "to=functions.a " * 15_000,
        "<|tool_call>call:a{" * 10_000,
        "<|tool_call_start|>" * 10_000,
        " " * 200_000 + "x",
    ],
    ids=lambda text: text[:20],
)
def test_opening_marks_alone_take_linear_time(text: str) -> None:
    began = time.process_time()
    for form in FORMS:
        assert canonical(form, text, "") == ""
    tool_messages("", text)
    answer_of(text, with_tools=True, name="x")
    assert time.process_time() - began < 5.0
