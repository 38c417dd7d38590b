"""End marks that rows of a file spell: one behind an answer is its end, one inside is letters, others are counted."""

from __future__ import annotations

import pytest
from test_text_imitation import CHATML, taught, tokenizer

from rlinf.datasets.conversation_rows import ConversationError, conversation_of
from rlinf.rollouts.text.counted_marks import WrittenMarks, written_marks
from rlinf.rollouts.text.demonstrated import Demonstration
from rlinf.rollouts.text.demonstrations import _encoded
from rlinf.rollouts.text.imitation import ConversationEncoder
from rlinf.rollouts.text.tokens.prompts import PromptRenderer
from rlinf.rollouts.text.tokens.tokenizer_marks import TokenizerMarks


def marked(*rows: tuple[str, str], template: str | None = CHATML, chat_template: str = "auto") -> WrittenMarks:
    marks = TokenizerMarks(PromptRenderer(tokenizer(template), chat_template=chat_template))
    read = (
        conversation_of(f"rows:{line}", {"prompt": prompt, "response": response})
        for line, (prompt, response) in enumerate(rows, start=1)
    )
    return written_marks(read, marks)


@pytest.mark.parametrize("behind", ["<|im_end|>", "<|im_end|>\n", "<eos>", "<|im_end|>\n<eos>"])
def test_a_mark_behind_an_answer_is_its_end(behind: str) -> None:
    assert taught(CHATML, {"prompt": "1 + 2?", "response": f"3{behind}"})[1] == "«3<|im_end|>»"
    renderer = PromptRenderer(tokenizer(CHATML))
    demonstrated, _ = _encoded(Demonstration("1 + 2?", (f"3{behind}",)), renderer, TokenizerMarks(renderer))
    assert tokenizer(CHATML).decode(demonstrated) == "3<|im_end|>"
    ((what, _),) = marked(("1 + 2?", "3"), ("1 + 2?", f"3{behind}")).remarks()
    assert what.endswith(": 1, the first in rows:2, message 2 (assistant)")


def test_marks_of_turns_before_are_not_doubled_either() -> None:
    talk = [("user", "1?"), ("assistant", "2<|im_end|>\n"), ("user", "3?"), ("assistant", "4<|im_end|>")]
    written = {"messages": [{"role": role, "content": text} for role, text in talk]}
    bare = {
        "messages": [{"role": role, "content": text.removesuffix("\n")[:2].removesuffix("<")} for role, text in talk]
    }
    assert taught(CHATML, written) == taught(CHATML, bare)


@pytest.mark.parametrize("template", [None, CHATML])
@pytest.mark.parametrize("answer", ["<eos> ends it", "a <eos> b<eos>c"])
def test_an_end_mark_inside_of_an_answer_is_letters(template: str | None, answer: str) -> None:
    """As a policy that writes `</s>` of HTML would sample it: its own end token would end the response."""
    made = tokenizer(template)
    row = {"prompt": "1 + 2?", "response": answer}
    one = ConversationEncoder(made).encode(conversation_of("rows:1", row))
    answered = [token for token, imitated in zip(one.tokens, one.mask, strict=True) if imitated]
    assert made.decode(answered[:-1]) == answer
    assert not {made.eos_token_id}.intersection(answered[:-1])
    renderer = PromptRenderer(made)
    assert _encoded(Demonstration("1 + 2?", (answer,)), renderer, TokenizerMarks(renderer))[0] == one.tokens
    ((what, _),) = marked(("1 + 2?", "3"), ("1 + 2?", answer), template=template).remarks()
    assert what == "answers with <eos> inside: 1, the first in rows:2, message 2 (assistant)"
    # Texts behind it have their marks again.
    assert made.encode("<eos>") == [made.eos_token_id]


def test_what_the_template_writes_before_an_answer_keeps_its_marks() -> None:
    template = CHATML.replace("{{ m.content }}", "{% if m.role == 'assistant' %}<|eom|>{% endif %}{{ m.content }}")
    _, rest = taught(template, {"prompt": "1 + 2?", "response": "<s>3</s> <eos> 4"})
    assert rest == "«<|eom|><s>3</s> <eos> 4<|im_end|>»"
    made = tokenizer(template)
    one = ConversationEncoder(made).encode(
        conversation_of("rows:1", {"prompt": "1 + 2?", "response": "<s>3</s> <eos> 4"})
    )
    assert one.tokens[0] == made.convert_tokens_to_ids("<|eom|>")
    assert made.eos_token_id not in one.tokens


@pytest.mark.parametrize("answer", ["3<|im_end|>\n<|im_start|>user\nand 4?", "<|im_start|>assistant\n3", "<|im_end|>"])
def test_turns_inside_of_an_answer_are_refused_with_the_number_of_rows(answer: str) -> None:
    with pytest.raises(
        ConversationError, match=r"rows:2, message 2 \(assistant\): the answer has .* inside \(of 2 such"
    ):
        marked(("1 + 2?", "3"), ("1 + 2?", answer), ("1 + 2?", answer))


def test_marks_of_others_and_marks_in_prompts_are_counted() -> None:
    rows = (("1 + 2?", "3</s>"), ("1 + 2?\n", "3</s>\n"), ("1 + 2?<|im_end|>", "3"), ("<b>?</s>", "a </s> b"))
    assert [what for what, _ in marked(*rows).remarks()] == [
        "answers that end with </s>: 2, the first in rows:1, message 2 (assistant)",
        "prompts with <|im_end|> in their words: 1, the first in rows:3, message 1 (user)",
    ]


def test_plain_prompts_may_have_the_marks_of_a_template() -> None:
    rows = (("<bos><|im_start|>user\n1 + 2?<|im_end|>\n", "3<|im_end|>"),)
    assert marked(*rows, template=None).remarks() == []
    assert marked(*rows, chat_template="never").remarks() == []
    ((what, _),) = marked(("1 + 2?", "3<eos>\n1 + 3?"), template=None).remarks()
    assert what.startswith("answers with <eos> inside: 1")
