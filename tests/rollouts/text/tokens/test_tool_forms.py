"""Calls and answers of tools in the chat templates of several model families, held by golden files.

A round trip: the call that the template writes is the policy's response; with the answer that the rollout adds, the row
is the conversation as the template renders it at once, token by token.
"""

from __future__ import annotations

import importlib.util
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from rlinf.base.tool_calls import written
from rlinf.models.tokenizer import train_tokenizer
from rlinf.rollouts.agents.episodes import AgentEpisode
from rlinf.rollouts.agents.messages import answer_of, context_of, names_of, remember
from rlinf.rollouts.text.tokens import chat_template
from rlinf.rollouts.text.tokens.picture_tokens import rendered_with_pictures
from rlinf.rollouts.text.tokens.prompts import ChatTemplateError, PromptRenderer
from rlinf.rollouts.text.tokens.tool_forms import tool_message

# Its files are read; importing it takes a second of each process that collects tests.
_TRL = importlib.util.find_spec("trl")
if _TRL is None:
    pytest.skip("needs trl", allow_module_level=True)
TEMPLATES = Path(str(_TRL.origin)).parent / "chat_templates"
GOLDEN = Path(__file__).with_name("golden")
FAMILIES = {
    "qwen2_5": "hermes",
    "qwen3_6": "xml",
    "glm4moe": "glm",
    "gptoss": "harmony",
    "llama3_1": "llama",
    "lfm2_v2": "pythonic",
    "gemma4": "gemma",
}
SCHEMA = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Adds two numbers.",
        "parameters": {
            "type": "object",
            "properties": {"a": {"type": "integer", "description": "one"}, "note": {"type": "string"}},
            "required": ["a"],
        },
    },
}
ARGUMENTS = {"a": 3, "note": "x, y"}
CALL = {
    "role": "assistant",
    "content": "",
    "tool_calls": [{"id": "000000000", "type": "function", "function": {"name": "add", "arguments": ARGUMENTS}}],
}
ANSWER = {"role": "tool", "name": "add", "tool_call_id": "000000000", "content": "seven"}
_MARK = re.compile(r"<\|[^|>\s]{1,40}\|>|</?s>|<(?:start|end)_of_turn>|<\|\w+>|<\w+\|>")


@cache
def tokenizer(name: str) -> Any:
    template = (TEMPLATES / f"{name}.jinja").read_text(encoding="utf-8")
    made = train_tokenizer(["hello world"], vocab_size=280)
    marks = sorted({*_MARK.findall(template), '<|"|>'})
    made.add_special_tokens({"additional_special_tokens": marks, "bos_token": "<BOS>", "eos_token": "<EOS>"})
    made.chat_template = template
    return made


@pytest.mark.slow
def test_every_template_has_a_second_turn_with_the_words_of_all_messages() -> None:
    """The forms for conversations that trl ships: 41, of more than 25 families."""
    names = sorted(file.stem for file in TEMPLATES.glob("*.jinja") if not file.stem.endswith("_training"))
    assert len(names) > 40
    question, answer, further = (
        {"role": role, "content": text} for role, text in (("user", "1 + 1?"), ("assistant", "3"), ("user", "Wrong."))
    )
    refused = {}
    for name in names:
        tokens = tokenizer(name)
        renderer = PromptRenderer(tokens)
        try:
            renderer.require_turns()
        except ChatTemplateError as error:
            refused[name] = str(error)
            continue
        whole = rendered_with_pictures(None, tokens, [question, answer, further], prompt=True, variables={})
        assert "1 + 1?" in whole, name
        # Before it stand the tokens of the policy, which some templates would write without their thoughts.
        assert whole.endswith(tokens.decode(renderer.continuation("Wrong."))), name
    assert refused == {}


@pytest.mark.parametrize("name", FAMILIES)
def test_a_call_and_its_answer_are_what_the_template_writes(name: str) -> None:
    tokens = tokenizer(name)
    renderer = PromptRenderer(tokens, tools=[SCHEMA])
    assert renderer.tool_form.name == FAMILIES[name]

    def rendered(*messages: dict[str, Any], prompt: bool = False) -> str:
        return chat_template.rendered(tokens, messages, prompt=prompt, variables={}, tools=[SCHEMA])

    question = {"role": "user", "content": "How much?"}
    opening, called = renderer.opening("How much?"), rendered(question, CALL)
    assert called.startswith(opening)
    response = renderer.encode(called[len(opening) :])
    # Not every template closes a call with a mark (GLM's does not).
    marks = [index for index, token in enumerate(response) if token in renderer.marks]
    response = response[: marks[-1] + 1] if marks else response
    added = renderer.continuation("seven", "tool", after=response[-1], response=renderer.env_text(response))
    whole = rendered(question, CALL, ANSWER, prompt=True)
    # Some templates write the answer as JSON holds it: a tool's answer is a text there too.
    assert tokens.decode([*renderer.encode(opening), *response, *added]) == whole
    assert json.loads(renderer.env_text(response).removeprefix("<tool_call>").removesuffix("</tool_call>")) == {
        "name": "add",
        "arguments": ARGUMENTS,
    }
    held = {
        "opening": opening,
        "response": tokens.decode(response),
        "read": renderer.env_text(response),
        "added": tokens.decode(list(added)),
    }
    assert held == json.loads((GOLDEN / f"{name}.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", ["gemma", "cohere", "phi3", "llama3"])
def test_prompts_of_templates_without_tools_describe_them_in_words(name: str) -> None:
    renderer = PromptRenderer(tokenizer(name), tools=[SCHEMA], instruction="auto")
    assert "- add: Adds two numbers. Arguments:" in renderer.opening("How much?")
    assert renderer.role("environment", "tool") == "user"
    assert renderer.continuation("seven", "tool") == renderer.continuation("seven", "user")
    assert renderer.env_text(renderer.encode("plain")) == "plain"


@pytest.mark.parametrize("name", FAMILIES)
def test_a_client_of_the_endpoint_that_has_tools_writes_the_same_conversation(name: str) -> None:
    """It sends messages and gets calls with ids; the tokens are those of the template, the sampled ones kept."""
    tokens = tokenizer(name)
    renderer, golden = PromptRenderer(tokens), json.loads((GOLDEN / f"{name}.json").read_text(encoding="utf-8"))
    episode, question = AgentEpisode((0,), sample=0, row_index=0, group=0), [{"role": "user", "content": "How much?"}]
    names = names_of(question, [SCHEMA])
    context = context_of(episode, question, names, [SCHEMA], renderer)
    assert tokens.decode(context) == golden["opening"]
    response = renderer.encode(golden["response"])
    answer = answer_of(renderer.answered(response, tools=[SCHEMA]), with_tools=True, name="x")
    assert answer["tool_calls"] == [
        {"id": "call-x-0", "type": "function", "function": {"name": "add", "arguments": json.dumps(ARGUMENTS)}}
    ]
    remember(episode, names, answer, (*context, *response))
    answered = {"role": "tool", "tool_call_id": "call-x-0", "content": "seven"}
    whole = [*question, answer, answered]
    further = context_of(episode, whole, names_of(whole, [SCHEMA]), [SCHEMA], renderer)
    assert further[: len(context) + len(response)] == (*context, *response)
    assert tokens.decode(further[len(context) + len(response) :]) == golden["added"]


def test_a_client_of_the_endpoint_has_its_tools_described_in_words_where_the_template_does_not_describe_them() -> None:
    renderer = PromptRenderer(tokenizer("phi3"), instruction="auto")
    question = [{"role": "user", "content": "How much?"}]
    answered = {"role": "tool", "tool_call_id": "call-x-0", "content": "seven"}
    text = renderer.tokenizer.decode(
        renderer.conversation([*question, {"role": "assistant", "content": "?"}, answered], tools=[SCHEMA])
    )
    assert text.count("- add: Adds two numbers. Arguments:") == 1
    assert text.index("How much?") < text.index("- add:") < text.index("seven")
    assert renderer.continuation_of([answered]) == renderer.continuation("seven", "user")


@pytest.mark.parametrize("name", ["qwen2_5", "glm4moe", "gptoss", "llama3_1", "lfm2_v2"])
def test_each_of_several_calls_has_its_own_answer(name: str) -> None:
    renderer = PromptRenderer(tokenizer(name), tools=[SCHEMA])
    response = written("add", {"a": 3}) + written("multiply", {"a": 4})
    answers = [tool_message("seven", "add"), tool_message("eight", "multiply")]
    if name == "gptoss":  # its template has one call in a turn
        answers = [tool_message("seven\neight", "add")]
    assert renderer.continuation("seven\neight", "tool", response=response) == renderer.continuation_of(answers)
    lines = tool_message("seven\neight\nnine", "add")
    assert renderer.continuation(lines["content"], "tool", response=response) == renderer.continuation_of([lines])


def test_answers_in_the_role_of_the_user_are_one_message() -> None:
    renderer = PromptRenderer(tokenizer("gemma"), tools=[SCHEMA], instruction="auto")
    response = written("add", {"a": 3}) * 2
    assert renderer.continuation("3\n3", "tool", response=response) == renderer.continuation("3\n3", "user")
