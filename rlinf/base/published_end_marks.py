"""End marks of published language models, which data sets often have behind their answers."""

from __future__ import annotations

from collections.abc import Collection

PUBLISHED = (
    *("</s>", "<eos>", "[EOS]", "<|endoftext|>", "<|end_of_text|>", "<|im_end|>", "<|eot_id|>", "<|eom_id|>"),
    *("<|end|>", "<|return|>", "<end_of_turn>", "<turn|>", "<｜end▁of▁sentence｜>", "<|END_OF_TURN_TOKEN|>", "<|eot|>"),
)


def without_end_marks(text: str, marks: Collection[str] = PUBLISHED) -> str:
    """Return ``text`` without the ``marks`` behind its last word, and the blanks behind them. One pass.

    >>> without_end_marks("So 4.<|im_end|>\\n</s>"), without_end_marks("</s> closes <s>\\n")
    ('So 4.', '</s> closes <s>\\n')
    """
    end = len(text)
    while True:
        last = end
        while last and text[last - 1].isspace():
            last -= 1
        mark = next((one for one in marks if text.endswith(one, 0, last)), None)
        if not mark:
            return text[:end]
        end = last - len(mark)
