"""The text of each recorded token, from the tokenizer that the run directory keeps."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path

Decoder = Callable[[Sequence[int]], list[str]]
"""From token ids to their pieces of text, which joined are the whole."""
# UTF-8 has at most four bytes to a character, and a token at least one: more than that is no character at all.
_LONGEST_CHARACTER = 4


def token_decoder(folder: Path) -> Decoder | None:
    """From token ids to their pieces of text; None without a tokenizer."""
    saved = folder / "tokenizer"
    if not saved.exists() or importlib.util.find_spec("transformers") is None:
        return None
    from rlinf.models.loading import load_tokenizer

    tokenizer = load_tokenizer(str(saved))

    def pieces(tokens: Sequence[int]) -> list[str]:
        # A character may take several tokens, and then belongs to the one that completes it. Each piece is decoded
        # behind the one before, as some tokenizers drop a leading space: the time is linear in the tokens.
        texts = []
        begin, seen = 0, 0
        for end in range(1, len(tokens) + 1):
            known, text = tokenizer.decode(list(tokens[begin:seen])), tokenizer.decode(list(tokens[begin:end]))
            if text.endswith("\ufffd") and end < len(tokens) and end - seen < _LONGEST_CHARACTER:
                texts.append("")
                continue
            texts.append(text[len(known) :])
            begin, seen = seen, end
        return texts

    return pieces
