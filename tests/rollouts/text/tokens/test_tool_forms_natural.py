"""Calls as models of each family write them, to environments and to clients of the endpoint."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from rlinf_envs.tools.calls import calls_in

from rlinf.rollouts.agents.messages import answer_of
from rlinf.rollouts.text.tokens.tool_forms import FORMS, canonical

TYPES = {
    "weather": {"city": "string", "days": "integer", "metric": "boolean"},
    "write": {"path": "string", "content": "string"},
    "search": {"query": "string", "filters": "object"},
}
TOOLS = tuple(
    {
        "type": "function",
        "function": {"name": name, "parameters": {"properties": {key: {"type": kind} for key, kind in types.items()}}},
    }
    for name, types in TYPES.items()
)
FORM_BY_NAME = {form.name: replace(form, tools=TOOLS) for form in FORMS}
JSON = '{"name": "weather", "arguments": {"city": "Paris"}}'
LLAMA = '{"name": "weather", "parameters": {"city": "Paris"}}'
XML = "<function=weather>\n<parameter=city>\nParis\n</parameter>\n"
GLM = "<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n"
DEEPSEEK = "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>"
KIMI = '<|tool_call_argument_begin|>{"city": "Paris"}<|tool_call_end|><|tool_calls_section_end|>'
PARIS = ("weather", {"city": "Paris"})
FORECAST = ("weather", {"city": "Paris", "days": 3, "metric": True})
RAIN = ("search", {"query": "rain"})


def environment_reads(family: str, response: str) -> list[tuple[str, object, str]]:
    read = canonical(FORM_BY_NAME[family], response, response)
    return [(call.name, dict(call.arguments), call.problem) for call in calls_in(read)]


def client_reads(family: str, response: str) -> list[tuple[str, object]]:
    message = answer_of(canonical(FORM_BY_NAME[family], response, response), with_tools=True, name="x")
    functions = [call["function"] for call in message.get("tool_calls", ())]
    return [(function["name"], json.loads(function["arguments"])) for function in functions]


@pytest.mark.parametrize(
    ("family", "response"),
    [
        ("hermes", f"<tool_call>\n{JSON}\n</tool_call>"),
        ("hermes", f"<think>\nThe weather is needed.\n</think>\n\n<tool_call>\n{JSON}\n</tool_call>"),
        ("hermes", f"<think>\nThe weather first.\n<tool_call>\n{JSON}\n</tool_call>"),
        ("hermes", f"Let me check.\n\n<tool_call>\n{JSON}\n</tool_call>\n\nI will wait for the result."),
        ("hermes", f"<tool_call>\n{JSON}"),
        ("hermes", f"<tool_call>\n```json\n{JSON}\n```\n</tool_call>"),
        ("hermes", f"```json\n<tool_call>\n{JSON}\n</tool_call>\n```"),
        ("hermes", f"```json\n{JSON}\n```"),
        ("hermes", f"I will call the service.\n\n```json\n{JSON}\n```\n\nThen I can answer."),
        ("hermes", JSON),
        ("hermes", f"<tools>\n{JSON}\n</tools>"),
        ("hermes", '<tool_call>{"name": "weather", "arguments": "{\\"city\\": \\"Paris\\"}"}</tool_call>'),
        ("hermes", '<tool_call>{"name": "weather", "arguments": {"city": "Paris",}}</tool_call>'),
        ("hermes", "<tool_call>{'name': 'weather', 'arguments': {'city': 'Paris'}}</tool_call>"),
        ("hermes", '<tool_call>{"function": "weather", "arguments": {"city": "Paris"}}</tool_call>'),
        ("hermes", f"<tool_call>\n{XML}</function>\n</tool_call>"),
        ("hermes", 'I will check.\n\n```tool_code\nprint(weather(city="Paris"))\n```\n'),
        ("llama", LLAMA),
        ("llama", f"<|python_tag|>{LLAMA}<|eom_id|>"),
        ("llama", f"Let me check the weather.<|python_tag|>{LLAMA}<|eom_id|>"),
        ("llama", f"To answer I call a function:\n\n```json\n{LLAMA}\n```"),
        ("llama", '{"type": "function", "name": "weather", "parameters": {"city": "Paris"}}'),
        ("llama", '<function=weather>{"city": "Paris"}</function><|eom_id|>'),
        ("mistral", f"[TOOL_CALLS] [{JSON}]</s>"),
        ("mistral", f"[TOOL_CALLS] [{JSON}]\n\nI will wait.</s>"),
        ("mistral", 'I will check.[TOOL_CALLS]weather[CALL_ID]a1b2c3d4e[ARGS]{"city": "Paris"}</s>'),
        ("deepseek", DEEPSEEK + 'function<｜tool▁sep｜>weather\n```json\n{"city": "Paris"}\n```<｜tool▁call▁end｜>'),
        ("deepseek", DEEPSEEK + 'function<｜tool▁sep｜>weather\n```\n{"city": "Paris"}\n```<｜tool▁call▁end｜>'),
        ("deepseek", f'The weather.</think>{DEEPSEEK}weather<｜tool▁sep｜>{{"city": "Paris"}}<｜tool▁call▁end｜>'),
        ("glm", f"<think>weather</think>\n{GLM}</tool_call>"),
        ("glm", GLM),
        ("glm", f"<tool_call>\n{JSON}\n</tool_call>"),
        ("xml", f"<tool_call>\n{XML}</function>\n</tool_call>"),
        ("xml", f"<tool_call>\n{XML}</tool_call>"),
        ("xml", f"<tool_call>\n{JSON}\n</tool_call>"),
        ("kimi", f"<|tool_calls_section_begin|><|tool_call_begin|>functions.weather:0{KIMI}"),
        ("kimi", f"<think>Paris.</think><|tool_calls_section_begin|><|tool_call_begin|>weather:0{KIMI}"),
        ("harmony", '<|channel|>commentary to=functions.weather <|constrain|>json<|message|>{"city": "Paris"}<|call|>'),
        ("harmony", ' to=functions.weather<|channel|>commentary json<|message|>{"city": "Paris"}<|call|>'),
        ("harmony", "<|channel|>commentary to=functions.weather<|message|>{'city': 'Paris'}<|call|>"),
        ("gemma", '<|tool_call>call:weather{city:<|"|>Paris<|"|>}<tool_call|>'),
        ("pythonic", '<|tool_call_start|>[weather(city="Paris")]<|tool_call_end|>I check.'),
        ("pythonic", '<|tool_call_start|>[weather(city="Paris")]'),
        ("pythonic", f"<|tool_call_start|>[{JSON}]<|tool_call_end|>"),
    ],
)
def test_a_call_is_read_as_its_model_writes_it(family: str, response: str) -> None:
    assert environment_reads(family, response) == [(*PARIS, "")]
    assert client_reads(family, response) == [PARIS]


FENCED = {"path": "a.md", "content": "```python\nprint(1)\n```"}
HTML = {"path": "a.html", "content": '<p>\n\n  1 < 2 & "x"\n</p>'}


@pytest.mark.parametrize(
    ("family", "response", "calls"),
    [
        ("hermes", f'<tool_call>{JSON}</tool_call>\nand\n<tool_call>search(query="rain")</tool_call>', [PARIS, RAIN]),
        (
            "hermes",
            '<tool_call>{"name": "weather", "arguments": {"city": "Paris", "days": 3, "metric": true,}}</tool_call>',
            [FORECAST],
        ),
        (
            "hermes",
            "<tool_call>{'name': 'weather', 'arguments': {'city': 'Paris', 'days': 3, 'metric': true}}</tool_call>",
            [FORECAST],
        ),
        (
            "hermes",
            '```tool_code\nweather(city="Paris", days=3, metric=True)\nsearch(query="rain")\n```',
            [FORECAST, RAIN],
        ),
        (
            "hermes",
            '<tool_call>{"name": "write", "arguments": {"path": "größe.txt", "content": "東京 🌧\nℝ"}}</tool_call>',
            [("write", {"path": "größe.txt", "content": "東京 🌧\nℝ"})],
        ),
        (
            "hermes",
            '<tool_call>{"name": "write", "arguments": "{\\"content\\": \\"x\\ny\\"}"}</tool_call>',
            [("write", {"content": "x\ny"})],
        ),
        (
            "hermes",
            '<tool_call>{"name": "write", "arguments": {"path": "</tool_call>", "content": "<tool_call>"}}</tool_call>',
            [("write", {"path": "</tool_call>", "content": "<tool_call>"})],
        ),
        (
            "hermes",
            '<tool_call>{"name": "search", "arguments": {"filters": {"tags": ["a", {"b": null}]}}}</tool_call>',
            [("search", {"filters": {"tags": ["a", {"b": None}]}})],
        ),
        ("llama", f'{LLAMA}; {{"name": "search", "parameters": {{"query": "rain"}}}}<|eot_id|>', [PARIS, RAIN]),
        ("llama", '[weather(city="Paris", days=3, metric=True), search(query="rain")]<|eot_id|>', [FORECAST, RAIN]),
        ("mistral", '[TOOL_CALLS]weather{"city": "Paris"}[TOOL_CALLS]search[ARGS]{"query": "rain"}</s>', [PARIS, RAIN]),
        (
            "mistral",
            '[TOOL_CALLS]write[ARGS]{"path": "a.py", "content": "x = 1\ny = 2"}</s>',
            [("write", {"path": "a.py", "content": "x = 1\ny = 2"})],
        ),
        (
            "deepseek",
            f"{DEEPSEEK}function<｜tool▁sep｜>write\n```json\n{json.dumps(FENCED)}\n```<｜tool▁call▁end｜>",
            [("write", FENCED)],
        ),
        (
            "glm",
            "<tool_call>search<arg_key>query</arg_key><arg_value>3.10</arg_value></tool_call>",
            [("search", {"query": "3.10"})],
        ),
        (
            "xml",
            f"{XML}<parameter=days>\n3\n</parameter>\n<parameter=metric>\nTrue\n</parameter>\n</function>",
            [FORECAST],
        ),
        (
            "xml",
            '<function=write>\n<parameter=path>\na.json\n</parameter>\n<parameter=content>\n{"a": 1}\n</parameter>\n'
            "</function>",
            [("write", {"path": "a.json", "content": '{"a": 1}'})],
        ),
        (
            "xml",
            f"<function=write>\n<parameter=path>\na.html\n</parameter>\n<parameter=content>\n{HTML['content']}\n"
            "</parameter>\n</function>",
            [("write", HTML)],
        ),
        (
            "xml",
            "<function=search>\n<parameter=filters>\n{'year': 1990, 'free': True}\n</parameter>\n</function>",
            [("search", {"filters": {"year": 1990, "free": True}})],
        ),
        (
            "kimi",
            '<|tool_call_begin|>functions.write:0<|tool_call_argument_begin|>{"path": "a", "content": "x\ny"}'
            "<|tool_call_end|>",
            [("write", {"path": "a", "content": "x\ny"})],
        ),
        (
            "pythonic",
            '<|tool_call_start|>[weather(city="Paris", days=3, metric=true), search(query="rain")]<|tool_call_end|>',
            [FORECAST, RAIN],
        ),
        (
            "pythonic",
            '<|tool_call_start|>[search(query="a", filters={"lat": -1.5, "p": (1, 2)})]<|tool_call_end|>',
            [("search", {"query": "a", "filters": {"lat": -1.5, "p": [1, 2]}})],
        ),
    ],
)
def test_several_calls_types_and_texts(family: str, response: str, calls: list[tuple[str, object]]) -> None:
    assert environment_reads(family, response) == [(*call, "") for call in calls]
    assert client_reads(family, response) == calls


@pytest.mark.parametrize(
    ("family", "response", "problem"),
    [
        ("hermes", '<tool_call>{"name": "weather", "arguments": {"city": "Paris"}</tool_call>', "line 1 column 51"),
        ("hermes", '<tool_call>{"name": "weather", "arguments": "{\\"city\\": }"}</tool_call>', "line 1 column 10"),
        ("llama", '{"name": "weather", "parameters": {"city": Paris}}', "line 1 column 44"),
        ("mistral", '[TOOL_CALLS] [{"name": "weather", "arguments": {"city": "Par</s>', "line 1 column 44"),
        ("deepseek", f'{DEEPSEEK}weather<｜tool▁sep｜>{{"city": "Paris"<｜tool▁call▁end｜>', "line 1 column 17"),
        (
            "kimi",
            '<|tool_call_begin|>weather:0<|tool_call_argument_begin|>{"city": <|tool_call_end|>',
            "line 1 column 9",
        ),
        ("harmony", '<|channel|>commentary to=functions.weather<|message|>{"city": Paris}<|call|>', "line 1 column 10"),
        (
            "pythonic",
            '<|tool_call_start|>[weather("Paris")]<|tool_call_end|>',
            "NAME(ARGUMENT=VALUE, ...): line 1 column 2",
        ),
        (
            "pythonic",
            '<|tool_call_start|>[search(filters={"a", "b"})]<|tool_call_end|>',
            "JSON can hold: line 1 column 17",
        ),
        ("pythonic", '<|tool_call_start|>[weather(city="Paris]<|tool_call_end|>', "unterminated string literal"),
    ],
)
def test_a_broken_call_has_the_position_of_its_error(family: str, response: str, problem: str) -> None:
    ((_, arguments, reported),) = environment_reads(family, response)
    assert arguments == {}
    assert problem in reported


@pytest.mark.parametrize(
    ("family", "response"),
    [
        ("hermes", "I would use <tool_call> here, but I can answer: 5."),
        ("hermes", f"<think>I could write <tool_call>{JSON}</tool_call></think>It is 5."),
        ("hermes", '```python\nweather(city="Paris")\n```'),
        ("hermes", '```json\n{"city": "Paris", "days": 3}\n```'),
        ("hermes", "[f(x), g(y)]"),
        ("llama", '{"name": "Paris", "age": 2000}'),
        ("llama", f"A call has the form {LLAMA}, as a rule."),
        ("harmony", '<|channel|>final<|message|>{"city": "Paris"}<|return|>'),
        (
            "harmony",
            "<|channel|>analysis<|message|>I could call to=functions.weather but need not.<|end|>"
            "<|start|>assistant<|channel|>final<|message|>It is 5.<|return|>",
        ),
    ],
)
def test_what_is_no_call_stays_as_it_is(family: str, response: str) -> None:
    assert canonical(FORM_BY_NAME[family], response, response) == response
    assert environment_reads(family, response) == []


def test_a_client_gets_arguments_that_cannot_be_read_as_they_are() -> None:
    response = '[TOOL_CALLS]weather[ARGS]{"city": </s>'
    message = answer_of(canonical(FORM_BY_NAME["mistral"], response, ""), with_tools=True, name="x")
    assert message["tool_calls"][0]["function"] == {"name": "weather", "arguments": '{"city":'}
