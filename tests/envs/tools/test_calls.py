"""Calls in responses, broken ones included."""

from __future__ import annotations

import json

import pytest
from rlinf_envs.tools.calls import calls_in, written


def test_what_is_written_is_read() -> None:
    (call,) = calls_in(f"Let me see. {written('add', {'a': 1, 'b': 'größer'})}")
    assert (call.name, call.arguments, call.problem) == ("add", {"a": 1, "b": "größer"}, "")


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ('{"name": "add", "arguments": ', "no valid JSON"),
        ("[" * 50_000, "nested too deeply"),
        (json.dumps({"name": "add", "arguments": "[" * 50_000}), "no valid JSON: brackets are nested too deeply"),
        (
            json.dumps({"name": "add", "arguments": '{"a": }'}),
            "arguments are no valid JSON: Expecting value: line 1",
        ),
        ("add(1)", "no valid Python: a call is NAME(ARGUMENT=VALUE, ...): line 1 column 1"),
        ("add(a=" + "-" * 50_000 + "1)", "no valid Python: "),
        (json.dumps({"name": "add", "arguments": [1]}), "must be an object"),
        (json.dumps({"add": {}}), 'an object with "name"'),
    ],
)
def test_a_broken_call_has_a_problem_in_words(content: str, problem: str) -> None:
    (call,) = calls_in(f"<tool_call>{content}</tool_call>")
    assert problem in call.problem
    assert call.arguments == {}


CALL = '{"name": "add", "arguments": {"a": 1}}'


@pytest.mark.parametrize(
    ("response", "count"),
    [
        (f"<tool_call>\n{CALL}\n{CALL}\n</tool_call>", 2),
        (f"<tool_call>[{CALL}, {CALL}]</tool_call>", 2),
        (f"<tool_call>{CALL}<tool_call>{CALL}</tool_call>", 2),
        (f"<tool_call>\n{CALL}", 1),
        (f"<tool_call>```json\n{CALL}\n```</tool_call>", 1),
        ("<tool_call>{'name': 'add', 'arguments': {'a': 1,},}</tool_call>", 1),
        ('<tool_call>{"name": " add", "parameters": {"a": 1}}</tool_call>', 1),
        ('<tool_call>{"type": "function", "function": {"name": "add", "arguments": "{\\"a\\": 1}"}}</tool_call>', 1),
        (f"<think>I could call {written('add', {'a': 2})}</think>{written('add', {'a': 1})}", 1),
        (f"plan: {written('add', {'a': 2})}</think>It is 5.", 0),
        ('<tool_call>{"type": "function", "function": "add", "arguments": {"a": 1}}</tool_call>', 1),
        ("<tool_call>add(a=1)\nadd(a=1)</tool_call>", 2),
        ("I will use the <tool_call> tag.", 0),
        ('<tool_call>{"name": "add", "arguments": {"a"', 0),
    ],
)
def test_calls_as_models_write_them(response: str, count: int) -> None:
    assert [(call.name, dict(call.arguments), call.problem) for call in calls_in(response)] == [
        ("add", {"a": 1}, "")
    ] * count


@pytest.mark.parametrize("arguments", ["", ', "arguments": null', ', "arguments": ""', ', "arguments": {}'])
def test_a_call_without_arguments(arguments: str) -> None:
    (call,) = calls_in(f'<tool_call>{{"name": "now"{arguments}}}</tool_call>')
    assert (call.name, call.arguments, call.problem) == ("now", {}, "")


@pytest.mark.parametrize("text", ["</tool_call>", "<tool_call>", 'a "</tool_call>" and <tool_call>'])
def test_marks_in_texts_of_arguments_do_not_end_a_call(text: str) -> None:
    call = json.dumps({"name": "print", "arguments": {"t": text}})
    assert [each.arguments for each in calls_in(f"<tool_call>{call}</tool_call> <tool_call>{call}</tool_call>")] == [
        {"t": text}
    ] * 2


def test_a_broken_call_leaves_the_next_one_whole() -> None:
    broken, call = calls_in(f'<tool_call>{{"name": "add</tool_call> then "this": <tool_call>{CALL}</tool_call>')
    assert broken.problem
    assert (call.name, call.arguments, call.problem) == ("add", {"a": 1}, "")


def test_a_text_in_arguments_may_have_line_breaks() -> None:
    (call,) = calls_in('<tool_call>{"name": "print", "arguments": {"t": "a\nb"}}</tool_call>')
    assert call.arguments == {"t": "a\nb"}


@pytest.mark.parametrize("content", ['{"name": "add", "args": {"a": 1}}', "{'name': 'add', 'arguments': {'a': {1}}}"])
def test_arguments_elsewhere_or_without_json_are_a_problem(content: str) -> None:
    (call,) = calls_in(f"<tool_call>{content}</tool_call>")
    assert call.problem
    assert call.arguments == {}
