"""End marks of published language models, which data sets often have behind their answers."""

from __future__ import annotations

import re

PUBLISHED = (
    *("</s>", "<eos>", "[EOS]", "<|endoftext|>", "<|end_of_text|>", "<|im_end|>", "<|eot_id|>", "<|eom_id|>"),
    *("<|end|>", "<|return|>", "<end_of_turn>", "<turn|>", "<｜end▁of▁sentence｜>", "<|END_OF_TURN_TOKEN|>", "<|eot|>"),
)
_BEHIND = re.compile(rf"(?:\s*(?:{'|'.join(map(re.escape, PUBLISHED))}))+\s*\Z")


def without_end_marks(text: str) -> str:
    """Return ``text`` without the published end marks behind its last word, and the blanks around them.

    >>> without_end_marks("So 4.<|im_end|>\\n"), without_end_marks("</s> closes <s>")
    ('So 4.', '</s> closes <s>')
    """
    return _BEHIND.sub("", text)
