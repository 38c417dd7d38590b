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
        (json.dumps({"name": "add", "arguments": "[" * 50_000}), "no valid JSON"),
        (json.dumps({"name": "add", "arguments": [1]}), "must be an object"),
        (json.dumps({"add": {}}), 'an object with "name"'),
    ],
)
def test_a_broken_call_has_a_problem_in_words(content: str, problem: str) -> None:
    (call,) = calls_in(f"<tool_call>{content}</tool_call>")
    assert problem in call.problem
    assert call.arguments == {}
