"""First and further turns under the shapes of chat templates that models come with."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from letters import Letters

from rlinf.data.messages import Completion
from rlinf.models.tokenizer import train_tokenizer
from rlinf.rollouts.text.conversation import Feedback, Row
from rlinf.rollouts.text.tokens import prompts
from rlinf.rollouts.text.tokens.prompts import ChatTemplateError, PromptRenderer

MARKS = ["<start>", "<end>", "<return>", "<message>", "<user>", "<assistant>", "[INST]", "[/INST]", "<bos>"]
# Roles between marks; any order of messages (Qwen, Llama 3).
MARKED = (
    "{% for m in messages %}<start>{{ m.role }}\n{{ m.content }}<end>\n{% endfor %}"
    "{% if add_generation_prompt %}<start>assistant\n{% endif %}"
)
# Roles must alternate, and a system message is refused (Gemma, Cohere).
ALTERNATING = (
    "<bos>{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate') }}{% endif %}"
    "<start>{{ 'model' if m.role == 'assistant' else m.role }}\n{{ m.content | trim }}<end>\n{% endfor %}"
    "{% if add_generation_prompt %}<start>model\n{% endif %}"
)
# No header before the policy's turn; the system prompt stands in the newest message (Mistral).
INSTRUCTIONS = (
    "{% if messages[0].role == 'system' %}{% set system = messages[0].content %}{% set messages = messages[1:] %}"
    "{% endif %}<bos>{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('After the optional system message, roles must alternate') }}{% endif %}"
    "{% if m.role == 'user' %}[INST] {% if loop.last and system is defined %}{{ system }}\n\n{% endif %}"
    "{{ m.content }}[/INST]{% else %} {{ m.content }}<eos>{% endif %}{% endfor %}"
)
# Another mark at the end of a conversation than within it (gpt-oss).
RETURNING = (
    "<start>system<message>You are a model.<end>{% for m in messages %}<start>{{ m.role }}<message>{{ m.content }}"
    "{{ '<return>' if loop.last and m.role == 'assistant' and not add_generation_prompt else '<end>' }}{% endfor %}"
    "{% if add_generation_prompt %}<start>assistant{% endif %}"
)
# The next role's mark ends a turn (GLM-4).
UNCLOSED = (
    "{% for m in messages %}<{{ m.role }}>\n{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>\n{% endif %}"
)
# Earlier answers are left out.
FORGETFUL = "{% for m in messages if m.role == 'user' %}<user>{{ m.content }}{% endfor %}<assistant>"


@cache
def trained() -> str:
    return str(
        train_tokenizer(["a question, an answer, user assistant model system"], vocab_size=300)._tokenizer.to_str()
    )


def tokenizer(template: str | None) -> Any:
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

    made = PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(trained()), pad_token="<pad>", eos_token="<eos>")
    made.add_tokens(MARKS, special_tokens=True)
    made.chat_template = template
    return made


def continuation(template: str, ended_with: str | None, *ends: str, system: str | None = None) -> str:
    """What stands behind a turn that ended with a token, as text."""
    words = tokenizer(template)
    ids = [words.convert_tokens_to_ids(end) for end in ends]
    renderer = PromptRenderer(words, system_prompt=system, end_token_ids=ids)
    after = None if ended_with is None else words.convert_tokens_to_ids(ended_with)
    return str(words.decode(renderer.continuation("Wrong.", after=after)))


@pytest.mark.parametrize(
    ("template", "ended_with", "expected"),
    [
        (MARKED, "<end>", "\n<start>user\nWrong.<end>\n<start>assistant\n"),
        (MARKED, "<eos>", "\n<start>user\nWrong.<end>\n<start>assistant\n"),
        (MARKED, "<pad>", "<end>\n<start>user\nWrong.<end>\n<start>assistant\n"),
        (ALTERNATING, "<end>", "\n<start>user\nWrong.<end>\n<start>model\n"),
        (ALTERNATING, None, "<end>\n<start>user\nWrong.<end>\n<start>model\n"),
        (INSTRUCTIONS, "<eos>", "[INST] Wrong.[/INST]"),
        (INSTRUCTIONS, None, "<eos>[INST] Wrong.[/INST]"),
        (RETURNING, "<return>", "<start>user<message>Wrong.<end><start>assistant"),
        (RETURNING, "<end>", "<start>user<message>Wrong.<end><start>assistant"),
        (RETURNING, None, "<end><start>user<message>Wrong.<end><start>assistant"),
        (UNCLOSED, "<user>", "\nWrong.<assistant>\n"),
        (UNCLOSED, "<eos>", "<user>\nWrong.<assistant>\n"),
    ],
)
def test_a_turn_is_closed_once_and_the_next_one_opened(template: str, ended_with: str | None, expected: str) -> None:
    assert continuation(template, ended_with) == expected


def test_further_end_tokens_of_a_checkpoint_close_a_turn_too() -> None:
    assert continuation(MARKED, "<return>").startswith("<end>\n")
    assert continuation(MARKED, "<return>", "<return>").startswith("\n<start>user")


def test_the_system_prompt_is_not_repeated() -> None:
    words = tokenizer(INSTRUCTIONS)
    renderer = PromptRenderer(words, system_prompt="Be brief.")
    assert words.decode(renderer.prompt("1 + 1?")) == "<bos>[INST] Be brief.\n\n1 + 1?[/INST]"
    assert "Be brief" not in continuation(INSTRUCTIONS, "<eos>", system="Be brief.")


BOX = {"\\boxed": "Box the answer.", "<calc>": "Use <calc>."}


@pytest.mark.parametrize(
    ("template", "instruction", "question", "shown"),
    [
        (MARKED, "auto", "1 + 1?", "1 + 1?\nBox the answer. Use <calc>."),
        (MARKED, "auto", "1 + 1? In \\boxed{}.", "1 + 1? In \\boxed{}.\nUse <calc>."),
        (MARKED, "auto", "\\boxed or <calc>?", "\\boxed or <calc>?"),
        (MARKED, "never", "1 + 1?", "1 + 1?"),
        (None, "auto", "1 + 1?", "1 + 1?"),
        (None, "always", "1 + 1?", "1 + 1?\nBox the answer. Use <calc>."),
    ],
)
def test_a_prompt_requests_what_it_does_not_show(
    template: str | None, instruction: str, question: str, shown: str
) -> None:
    renderer = PromptRenderer(tokenizer(template), instruction=instruction, instructions=BOX)
    opening = renderer.opening(question)
    assert opening == (f"<start>user\n{shown}<end>\n<start>assistant\n" if template else shown)
    prompted = PromptRenderer(tokenizer(template), instruction=instruction, instructions=BOX, system_prompt="\\boxed!")
    assert "Box the answer" not in prompted.opening("1 + 1?"), "the system prompt requests it"


def test_templates_get_further_variables() -> None:
    words = tokenizer(
        "{{ messages[0].content }}{% if enable_thinking is defined and not enable_thinking %} /no{% endif %}"
    )
    assert PromptRenderer(words).opening("1 + 1?") == "1 + 1?"
    assert PromptRenderer(words, template_kwargs={"enable_thinking": False}).opening("1 + 1?") == "1 + 1? /no"


def test_a_conversation_in_tokens_is_the_template_of_all_its_messages() -> None:
    words = tokenizer(ALTERNATING)
    renderer = PromptRenderer(words)
    row = Row(0, 0, 0, "sums", "2", "1 + 1?", renderer.prompt("1 + 1?"))
    response = (*words.encode("3", add_special_tokens=False), words.convert_tokens_to_ids("<end>"))
    row.append_response(Completion(0, 0, response, (0.0,) * len(response), "stop", (0,) * len(response)), renderer)
    row.read(Feedback(0, "Wrong.", 0.0, False), renderer)
    messages = [("user", "1 + 1?"), ("assistant", "3"), ("user", "Wrong.")]
    whole = words.apply_chat_template(
        [{"role": role, "content": text} for role, text in messages], tokenize=False, add_generation_prompt=True
    )
    assert words.decode([*row.prompt_ids, *row.tokens]) == whole


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        (FORGETFUL, "leaves the policy's earlier answers out"),
        (MARKED.replace("<start>", "{{ raise_exception('one turn only') if loop.length > 1 }}<start>", 1), "one turn"),
    ],
)
def test_a_template_of_one_turn_is_refused_with_the_reason(template: str, reason: str) -> None:
    renderer = PromptRenderer(tokenizer(template))
    renderer.prompt("1 + 1?")
    with pytest.raises(ChatTemplateError, match=rf"{reason}.*Set env.max_turns: 1, or data.chat_template: never"):
        renderer.require_turns()


def test_a_template_without_system_messages_is_named() -> None:
    renderer = PromptRenderer(tokenizer(ALTERNATING), system_prompt="Be brief.")
    with pytest.raises(ChatTemplateError, match=r"messages system, user \(.*alternate.* data.system_prompt: null"):
        renderer.prompt("1 + 1?")


def test_a_template_that_requires_a_system_message_is_named() -> None:
    requires = "{{ raise_exception('no system') if messages[0].role != 'system' }}"
    with pytest.raises(ChatTemplateError, match=r"Set data\.system_prompt to the system prompt that the template req"):
        PromptRenderer(tokenizer(requires + MARKED)).prompt("1 + 1?")


# Contents are lists of parts (several vision-language models); iterating over a text gives letters without text.
PARTS = (
    "{% for m in messages %}<start>{{ m.role }}\n{% for part in m.content %}{{ part.text }}{% endfor %}<end>\n"
    "{% endfor %}{% if add_generation_prompt %}<start>assistant\n{% endif %}"
)


def test_a_template_that_takes_parts_alone_gets_parts() -> None:
    renderer = PromptRenderer(tokenizer(PARTS), system_prompt="Be brief.")
    assert renderer.opening("1 + 1 <b>?") == (
        "<start>system\nBe brief.<end>\n<start>user\n1 + 1 <b>?<end>\n<start>assistant\n"
    )


@pytest.mark.parametrize(
    ("template", "role", "fix"),
    [
        ("<start>{{ messages | length }}<end>", "system", "data.system_prompt: null"),
        (MARKED.replace("in messages", "in messages if m.role != 'system'"), "system", "data.system_prompt: null"),
        (MARKED.replace("in messages", "in messages if m.role != 'user'"), "user", "data.chat_template: never"),
    ],
)
def test_words_that_a_template_leaves_out_are_never_lost_in_silence(template: str, role: str, fix: str) -> None:
    renderer = PromptRenderer(tokenizer(template), system_prompt="Be brief.")
    with pytest.raises(ChatTemplateError, match=f"leaves the words of the {role} out .*Set {fix}"):
        renderer.prompt("How many are there?")


def test_a_template_may_strip_and_escape_what_it_is_given() -> None:
    words = tokenizer("{% for m in messages %}{{ m.content | trim | tojson }}{% endfor %}")
    assert PromptRenderer(words).opening('  Is "2 < 3"\nright? ') == '"Is \\"2 < 3\\"\\nright?"'
    assert PromptRenderer(words).opening("?!") == '"?!"'


def test_a_prompt_that_was_rendered_before_is_not_rendered_again() -> None:
    bare = PromptRenderer(tokenizer(MARKED))
    rendered = bare.opening("1 + 1?")
    with pytest.raises(ChatTemplateError, match=r"through a chat template before: it holds '<end>.*assistant'"):
        bare.prompt(rendered)
    assert PromptRenderer(tokenizer(MARKED), chat_template="never").opening(rendered) == rendered
    assert "What does <end> mean?" in bare.opening("What does <end> mean?")


def test_an_empty_template_is_none() -> None:
    assert PromptRenderer(tokenizer("")).opening("1 + 1?") == "1 + 1?"


def test_plain_text_keeps_its_lines_separate() -> None:
    words = tokenizer(None)
    assert words.decode(PromptRenderer(words).continuation("Wrong.")) == "\nWrong.\n"
    with pytest.raises(ChatTemplateError, match="the tokenizer has no chat template"):
        PromptRenderer(words, chat_template="always")


def test_a_response_ends_with_the_token_that_completes_a_stop_text() -> None:
    words = tokenizer(None)
    tokens = tuple(words.encode("an answer, a question, an answer", add_special_tokens=False))
    completion = Completion(0, 0, tokens, tuple(range(len(tokens))), "length", (3,) * len(tokens))
    stopped = PromptRenderer(words, stop=["a ques", "never"]).until_stop(completion)
    kept = len(stopped.token_ids)
    text = words.decode(list(stopped.token_ids))
    assert "a ques" in text
    assert "a ques" not in words.decode(list(tokens[: kept - 1]))
    assert stopped.token_ids == tokens[:kept]
    assert stopped.logprobs == tuple(range(kept))
    assert stopped.policy_version == (3,) * kept
    assert stopped.finish_reason == "stop"
    assert PromptRenderer(words, stop=["never"]).until_stop(completion) == completion
    row = Row(0, 0, 0, "", "", "question", ())
    row.append_response(completion, PromptRenderer(words, stop=["a ques"]))
    assert row.tokens == list(tokens[:kept])
    assert not row.cut_by_length


def test_only_some_prompts_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A data set of a million prompts would be gigabytes of tokens."""
    monkeypatch.setattr(prompts, "_PROMPTS", 2)
    renderer = PromptRenderer(Letters())
    encoded: list[str] = []
    encode = renderer.encode
    monkeypatch.setattr(renderer, "encode", lambda text: encoded.append(text) or encode(text))
    for text in ("a", "a", "b", "c", "a"):
        assert renderer.prompt(text) == encode(text)
    assert encoded == ["a", "b", "c", "a"]
