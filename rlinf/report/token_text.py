"""The text of each recorded token, from the tokenizer that the run directory keeps."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path


def token_decoder(folder: Path) -> Callable[[Sequence[int]], list[str]] | None:
    """A function from token ids to their pieces of text, which joined are the whole; None without a tokenizer."""
    saved = folder / "tokenizer"
    if not saved.exists() or importlib.util.find_spec("transformers") is None:
        return None
    from rlinf.models.loading import load_tokenizer

    tokenizer = load_tokenizer(str(saved))

    def pieces(tokens: Sequence[int]) -> list[str]:
        # By growing prefixes: a character may take several tokens, and then belongs to the one that completes it.
        texts, before = [], ""
        for end in range(1, len(tokens) + 1):
            text = tokenizer.decode(list(tokens[:end]))
            whole = text.rstrip("\ufffd") if end < len(tokens) else text
            texts.append(whole[len(before) :])
            before = whole if len(whole) > len(before) else before
        return texts

    return pieces
