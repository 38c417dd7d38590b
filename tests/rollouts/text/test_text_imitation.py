"""Conversations in tokens: one end of a turn for teaching, sampling and export; thoughts, tools and <bos>."""

from __future__ import annotations

from typing import Any

import pytest
from chat_tokenizers import CHATML, SHORTENED, THINKING, TOOL, TOOLS, tokenizer

from rlinf.datasets.conversation_rows import ConversationError, conversation_of
from rlinf.rollouts.text.demonstrated import Demonstration
from rlinf.rollouts.text.demonstrations import _encoded
from rlinf.rollouts.text.imitation import ConversationEncoder
from rlinf.rollouts.text.tokens.prompts import PromptRenderer
from rlinf.rollouts.text.tokens.tokenizer_marks import TokenizerMarks


def taught(template: str | None, row: dict[str, Any], **options: Any) -> tuple[str, str]:
    """(the prompt, what follows it with the imitated stretches between guillemets)."""
    made = tokenizer(template, **options)
    one = ConversationEncoder(made).encode(conversation_of("rows:1", row))
    texts = [(made.decode([token]), imitated) for token, imitated in zip(one.tokens, one.mask, strict=True)]
    pieces = [f"«{text}»" if imitated else text for text, imitated in texts]
    return made.decode(one.prompt), "".join(pieces).replace("»«", "")


@pytest.mark.parametrize("template", [CHATML, TOOLS, None])
def test_what_is_taught_as_the_end_is_what_samplers_stop_at(template: str | None) -> None:
    made = tokenizer(template)
    renderer, encoder = PromptRenderer(made), ConversationEncoder(made)
    one = encoder.encode(conversation_of("rows:1", {"prompt": "1?", "response": "2"}))
    tokens, _ = _encoded(Demonstration("1?", ("2",)), renderer, TokenizerMarks(renderer))
    assert one.tokens == tokens
    assert tokens[-1] == renderer.turn_end
    ends = {made.convert_ids_to_tokens(token) for token in renderer.turn_ends}
    assert (
        ends == {CHATML: {"<eos>", "<|im_end|>"}, TOOLS: {"<eos>", "<|im_end|>", "<|eom|>"}, None: {"<eos>"}}[template]
    )


def test_without_the_template_its_mark_is_no_end() -> None:
    assert len(PromptRenderer(tokenizer(CHATML), chat_template="never").turn_ends) == 1


@pytest.mark.parametrize("template", [None, CHATML])
@pytest.mark.parametrize("bos", [True, False])
def test_plain_prompts_begin_as_the_tokenizer_begins_a_text(template: str | None, bos: bool) -> None:
    made = tokenizer(template, bos=bos)
    renderer, row = PromptRenderer(made), {"prompt": "1 + 2?", "response": "3"}
    sft = ConversationEncoder(made).encode(conversation_of("rows:1", row)).prompt
    first = made.convert_ids_to_tokens(sft[0])
    assert sft == renderer.prompt("1 + 2?") == renderer.conversation([{"role": "user", "content": "1 + 2?"}])
    assert first == ("<|im_start|>" if template else "<bos>") if bos or template else first != "<bos>"
    assert renderer.continuation("4?")[0] != made.bos_token_id
    if bos and template is None:
        assert list(sft) == made("1 + 2?")["input_ids"]
        # A template of prompts that writes it gets no second one.
        assert renderer.prompt("<bos>1 + 2?") == sft


@pytest.mark.parametrize("template", [THINKING, SHORTENED])
@pytest.mark.parametrize(
    "answer",
    [
        {"content": "<think>\nOne more.\n</think>\n3"},
        {"content": "One more.\n</think>\n3"},
        {"content": "3", "reasoning_content": "One more."},
    ],
)
def test_answers_begin_inside_of_thoughts_that_the_template_opens(template: str, answer: dict[str, str]) -> None:
    prompt, rest = taught(template, {"messages": [{"role": "user", "content": "1?"}, {"role": "assistant", **answer}]})
    assert prompt.endswith("assistant\n<think>\n")
    assert rest.replace("\n\n", "\n") == "«One more.\n</think>\n3<|im_end|>»"


def test_an_answer_without_thoughts_is_refused_where_the_template_opens_them() -> None:
    with pytest.raises(
        ConversationError, match=r"rows:1: .*opens the thoughts of each answer \(<think>\).*Write it as"
    ):
        taught(THINKING, {"prompt": "1?", "response": "2"})


def test_answers_that_do_not_count_may_be_rendered_otherwise() -> None:
    """The way out that the refusal names."""
    messages = [
        {"role": "user", "content": "1?"},
        {"role": "assistant", "content": "<think>\na\n</think>\n2"},
        {"role": "user", "content": "3?"},
        {"role": "assistant", "content": "<think>\nb\n</think>\n4"},
    ]
    with pytest.raises(ConversationError, match="one row for each answer, with weight 0"):
        taught(SHORTENED, {"messages": messages})
    messages[1]["weight"] = 0  # type: ignore[assignment]
    prompt, rest = taught(SHORTENED, {"messages": messages})
    assert prompt.endswith("assistant\n2<|im_end|>\n<|im_start|>user\n3?<|im_end|>\n<|im_start|>assistant\n<think>\n")
    assert rest == "«b\n</think>\n4<|im_end|>»"


def test_calls_of_tools_are_taught_as_the_template_writes_them() -> None:
    call = {"type": "function", "function": {"name": "lookup", "arguments": '{"word": "gnu"}'}}
    messages = [
        {"role": "user", "content": "gnu?"},
        {"role": "assistant", "content": "A moment.", "tool_calls": [call]},
        {"role": "user", "content": "an antelope"},
        {"role": "assistant", "content": "An antelope."},
    ]
    prompt, rest = taught(TOOLS, {"messages": messages, "tools": [TOOL]})
    assert '"lookup"' in prompt
    assert rest == (
        '«A moment.<call>lookup {"word": "gnu"}</call><|eom|>»\n<|im_start|>user\nan antelope<|im_end|>\n'
        "<|im_start|>assistant\n«An antelope.<|im_end|>»"
    )
    for template, words in ((CHATML, "does not describe tools"), (None, "plain text has no form for tools")):
        with pytest.raises(ConversationError, match=rf"rows:1: .*{words}"):
            taught(template, {"messages": messages, "tools": [TOOL]})
    with pytest.raises(ConversationError, match=r"leaves tool_calls out \(lookup\)"):
        taught(CHATML, {"messages": messages})
    with pytest.raises(ConversationError, match="plain text has no form for tool_calls"):
        taught(None, {"messages": messages})


def test_responses_are_read_behind_the_thoughts_that_the_template_opens() -> None:
    made = tokenizer(THINKING)
    renderer = PromptRenderer(made)
    decoder = renderer.response_text()
    tokens = renderer.encode("hm\n</think>\n3")
    assert decoder is not None
    assert renderer.env_text(tokens) == decoder.env_text(tokens) == "<think>\nhm\n</think>\n3"
    assert renderer.answered(tokens) == decoder.text(tokens) == "hm\n</think>\n3"
    assert PromptRenderer(tokenizer(CHATML)).env_text(tokens) == "hm\n</think>\n3"


def test_a_plain_prompt_that_ends_in_the_mark_opens_the_thoughts_too() -> None:
    made = tokenizer(None)
    tokens = PromptRenderer(made).encode("hm\n</think>\n3")
    assert PromptRenderer(made, example="Q: ...\nA: <think>").env_text(tokens) == "<think>hm\n</think>\n3"
    assert PromptRenderer(made, example="Think in <think>. Q: ...").env_text(tokens) == "hm\n</think>\n3"
    # A chat template has words of its own behind it.
    assert PromptRenderer(tokenizer(CHATML), example="Q: ...\n<think>").env_text(tokens) == "hm\n</think>\n3"


@pytest.mark.parametrize(("template", "mark"), [(CHATML, "<|im_end|>"), (None, "<eos>")])
def test_an_answer_that_is_written_with_its_end_mark_has_it_once(template: str | None, mark: str) -> None:
    row = {"prompt": "1 + 2?", "completion": f"3{mark}"}
    assert taught(template, row)[1] == f"«3{mark}»"
    made = tokenizer(template)
    renderer = PromptRenderer(made)
    ids, mask = _encoded(Demonstration("1 + 2?", (f"3{mark}",), (), "3"), renderer, TokenizerMarks(renderer))
    assert (made.decode(ids), mask) == (f"3{mark}", [True] * len(ids))


def test_words_that_a_template_leaves_out_are_not_lost() -> None:
    talk = [
        {"role": role, "content": text} for role, text in (("system", "S1"), ("user", "1 + 2?"), ("assistant", "3"))
    ]
    parts = CHATML.replace("{{ m.content }}", "{% for part in m.content %}{{ part.text }}{% endfor %}")
    assert taught(parts, {"messages": talk}) == taught(CHATML, {"messages": talk})
    deaf = CHATML.replace("in messages", "in messages if m.role != 'system'")
    with pytest.raises(ConversationError, match=r"rows:1: the chat template leaves the words of the system out.*'S1'"):
        taught(deaf, {"messages": talk})


def test_a_prompt_that_was_rendered_before_is_refused() -> None:
    rendered = "<|im_start|>user\n1 + 2?<|im_end|>\n<|im_start|>assistant\n"
    with pytest.raises(ConversationError, match=r"rows:1: a prompt has been through a chat template before"):
        taught(CHATML, {"prompt": rendered, "completion": "3"})


def test_a_call_ends_at_a_mark_that_is_special_under_no_name() -> None:
    made = tokenizer(TOOLS)
    from transformers import PreTrainedTokenizerFast

    bare = PreTrainedTokenizerFast(tokenizer_object=made.backend_tokenizer, pad_token="<pad>", eos_token="<eos>")
    bare.chat_template = TOOLS
    assert bare.convert_tokens_to_ids("<|eom|>") not in bare.all_special_ids
    renderer = PromptRenderer(bare)
    assert renderer.end_of_call(renderer.encode("<call>x</call><|eom|>\n")) == len(
        renderer.encode("<call>x</call><|eom|>")
    )
