"""A small tokenizer with chat templates of several kinds."""

from __future__ import annotations

from functools import cache
from typing import Any

from rlinf.models.tokenizer import train_tokenizer

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
THINKING = CHATML.replace("assistant\n{% endif", "assistant\n<think>\n{% endif")
# Thoughts of earlier answers are left out, and reasoning_content is read.
SHORTENED = THINKING.replace("{{ m.content }}", "{{ m.content.split('</think>')[-1] | trim }}")
TOOLS = (
    "{% if tools %}<|im_start|>system\n{{ tools | tojson }}<|im_end|>\n{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}{% for c in m.tool_calls or [] %}"
    "<call>{{ c.function.name }} {{ c.function.arguments | tojson }}</call>{% endfor %}"
    "{{ '<|eom|>' if m.tool_calls else '<|im_end|>' }}\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TOOL = {"name": "lookup", "description": "d", "parameters": {"type": "object", "properties": {}}}


@cache
def _trained() -> str:
    return str(train_tokenizer(["1 + 2? 3 assistant user system"] * 3, vocab_size=300).backend_tokenizer.to_str())


def tokenizer(template: str | None, *, bos: bool = False) -> Any:
    from tokenizers import Tokenizer, processors
    from transformers import PreTrainedTokenizerFast

    inner = Tokenizer.from_str(_trained())
    inner.add_special_tokens(["<bos>", "<|im_start|>", "<|im_end|>", "<|eom|>"])
    if bos:
        mark = ("<bos>", inner.token_to_id("<bos>"))
        inner.post_processor = processors.TemplateProcessing(single="<bos> $A", special_tokens=[mark])
    made = PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="<pad>", eos_token="<eos>", bos_token="<bos>")
    made.add_special_tokens({"additional_special_tokens": ["<|im_start|>", "<|im_end|>", "<|eom|>"]})
    made.chat_template = template
    return made
