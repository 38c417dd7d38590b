"""Calls of tools as transformers reads them, by a tokenizer's response template; ours are the fallback."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from rlinf.models.tokenizer import train_tokenizer
from rlinf.rollouts.text.tokens.prompts import PromptRenderer

TOOL = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Adds two numbers.",
        "parameters": {"type": "object", "properties": {"a": {"type": "integer"}, "note": {"type": "string"}}},
    },
}
# A family unknown to rlinf: <<call add a=3 note=x>>.
UNKNOWN = (
    "{% if tools %}{% for tool in tools %}{{ tool.function.name }}\n{% endfor %}{% endif %}"
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}"
    "{% for c in m.tool_calls or [] %}<<call {{ c.function.name }} {{ c.function.arguments | tojson }}>>{% endfor %}"
    "<|end|>{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
READS_UNKNOWN = {
    "start_anchor": "<|assistant|>",
    "defaults": {"role": "assistant"},
    "fields": {
        "content": {},
        "tool_calls": {
            "open_pattern": r"<<call (?P<name>\w+) ",
            "close": ">>",
            "content": "json",
            "repeats": True,
            "transform": {"type": "function", "function": {"name": "{name}", "arguments": "{content}"}},
        },
    },
}


def tokenizer(template: str = UNKNOWN, response_template: dict[str, Any] | None = None) -> Any:
    made = train_tokenizer(["hello world"], vocab_size=280)
    made.add_special_tokens({"additional_special_tokens": ["<|user|>", "<|assistant|>", "<|end|>"]})
    made.chat_template, made.response_template = template, response_template
    return made


def read(renderer: PromptRenderer, response: str) -> str:
    return renderer.env_text(renderer.encode(response))


def test_a_family_that_is_not_known_is_read_by_its_response_template() -> None:
    response = 'Let me see. <<call add {"a": 3, "note": "x"}>><<call add {"a": 4}>>'
    renderer = PromptRenderer(tokenizer(response_template=READS_UNKNOWN), tools=[TOOL])
    assert read(renderer, response) == (
        '<tool_call>{"name": "add", "arguments": {"a": 3, "note": "x"}}</tool_call>\n'
        '<tool_call>{"name": "add", "arguments": {"a": 4}}</tool_call>'
    )
    assert "calls in the form of the response template" in renderer.about_tools()
    assert renderer.response_text() is None, "where there is no transformers it can't be read"
    assert read(renderer, "plain") == "plain"
    assert read(PromptRenderer(tokenizer(), tools=[TOOL]), response) == response
    assert read(PromptRenderer(tokenizer(response_template=READS_UNKNOWN)), response) == response, "it has no tools"


def test_an_agent_s_tools_give_arguments_their_types() -> None:
    fields = copy.deepcopy(READS_UNKNOWN)
    fields["fields"]["tool_calls"] |= {"open_pattern": r"<<call (?P<name>\w+) a=(?P<a>\w+)", "content": "text"}
    fields["fields"]["tool_calls"]["transform"]["function"]["arguments"] = {"a": "{a}"}
    renderer = PromptRenderer(tokenizer(response_template=fields))
    tokens = renderer.encode("<<call add a=3>>")
    assert json.loads(renderer.answered(tokens, tools=[TOOL])[11:-12]) == {"name": "add", "arguments": {"a": 3}}


def test_what_a_response_template_refuses_is_read_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    template = UNKNOWN.replace("<<call {{ c.function.name }}", "<function=add>").replace(">>", "</function>")
    response = "<function=add>\n<parameter=a>\n3\n</parameter>\n</function>"
    made = tokenizer(template, READS_UNKNOWN)
    refused = []

    def refuse(text: str, **options: Any) -> dict[str, Any]:
        refused.append(text)
        raise ValueError("no JSON")

    monkeypatch.setattr(made, "parse_response", refuse)
    renderer = PromptRenderer(made, tools=[TOOL])
    assert read(renderer, response) == '<tool_call>{"name": "add", "arguments": {"a": 3}}</tool_call>'
    assert refused == [response]


def test_calls_in_the_form_of_environments_keep_the_words_around_them() -> None:
    template = UNKNOWN.replace("<<call {{ c.function.name }} ", '<tool_call>\n{"name": "add", "arguments": ')
    renderer = PromptRenderer(tokenizer(template, READS_UNKNOWN), tools=[TOOL])
    response = 'I add. <tool_call>\n{"name": "add", "arguments": {"a": 3}}\n</tool_call>'
    assert read(renderer, response) == response


@pytest.mark.parametrize("name", ["qwen3_6", "glm4moe", "gptoss", "llama3_1", "lfm2_v2", "gemma4"])
def test_response_templates_of_model_families_read_what_our_forms_read(name: str) -> None:
    pytest.importorskip("trl")
    from test_tool_forms import GOLDEN, SCHEMA
    from test_tool_forms import tokenizer as of_family
    from trl.chat_template_utils import add_response_schema

    held = json.loads(Path(GOLDEN / f"{name}.json").read_text(encoding="utf-8"))
    made = add_response_schema(copy.deepcopy(of_family(name)))
    renderer = PromptRenderer(made, tools=[SCHEMA])
    assert renderer.tool_form.name == "of the response template"
    assert read(renderer, held["response"]) == held["read"]
